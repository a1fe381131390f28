//! The calls' table against the mpi.h of the MPIs that are installed: nothing is missing, and every
//! argument stands where the table says.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::Path;

use plimsoll_calls::{CALLS, Call, Extent, SENT_WORDS_BEFORE, call, id_of};

/// The headers of an installation; MPICH has its functions in several.
const HEADERS: [(&str, &[&str]); 2] = [
    ("/usr/include/x86_64-linux-gnu/mpich", &["mpi.h", "mpi_proto.h", "mpio.h"]),
    ("/usr/lib/x86_64-linux-gnu/openmpi/include", &["mpi.h"]),
];

/// Functions that no other process takes part in, and queries (MPI-4.1, 2.4). A name that ends in
/// `*` stands for all functions with that prefix.
const LOCAL: &str = "
    MPI_Add_* MPI_Address MPI_Aint_* MPI_Alloc_mem MPI_Attr_* MPI_Buffer_attach MPI_CONVERSION_*
    MPI_COMM_*_FN MPI_Cart_coords MPI_Cart_get MPI_Cart_map MPI_Cart_rank MPI_Cart_shift
    MPI_Cartdim_get MPI_Close_port MPI_Comm_call_* MPI_Comm_compare MPI_Comm_create_errhandler
    MPI_Comm_create_keyval MPI_Comm_delete_attr MPI_Comm_free_keyval MPI_Comm_get_* MPI_Comm_group
    MPI_Comm_rank MPI_Comm_remote_* MPI_Comm_set_* MPI_Comm_size MPI_Comm_test_inter MPI_DUP_FN
    MPI_Dims_create MPI_Dist_graph_neighbors* MPI_Errhandler_* MPI_Error_* MPI_File_call_*
    MPI_File_create_errhandler MPI_File_get_* MPI_File_seek MPI_File_set_errhandler MPI_Finalized
    MPI_Free_mem MPI_Get_address MPI_Get_count MPI_Get_elements MPI_Get_elements_x
    MPI_Get_library_version MPI_Get_processor_name MPI_Get_version MPI_Graph_get MPI_Graph_map
    MPI_Graph_neighbors* MPI_Graphdims_get MPI_Grequest_* MPI_Group_* MPI_Info_* MPI_Initialized
    MPI_Is_thread_main MPI_Keyval_* MPI_NULL_* MPI_Op_* MPI_Pack* MPI_Query_thread MPI_Reduce_local
    MPI_Register_datarep MPI_Remove_* MPI_Session_call_* MPI_Session_create_errhandler
    MPI_Session_get_* MPI_Session_set_* MPI_Status_* MPI_TYPE_*_FN MPI_T_* MPI_Test_cancelled
    MPI_Topo_test MPI_Type_c* MPI_Type_delete_attr MPI_Type_dup MPI_Type_extent MPI_Type_free_keyval
    MPI_Type_get_* MPI_Type_h* MPI_Type_indexed MPI_Type_lb MPI_Type_match_size MPI_Type_set_*
    MPI_Type_size* MPI_Type_struct MPI_Type_ub MPI_Type_vector MPI_Unpack* MPI_WIN_*_FN
    MPI_Win_attach MPI_Win_call_* MPI_Win_create_errhandler MPI_Win_create_keyval
    MPI_Win_delete_attr MPI_Win_detach MPI_Win_free_keyval MPI_Win_get_* MPI_Win_set_*
    MPI_Win_shared_query MPI_Wtick MPI_Wtime
";

fn is_local(name: &str) -> bool {
    // Conversions of handles between C and Fortran.
    let conversion = ["_c2f", "_f2c", "_c2f08", "_f082c", "_f2f08", "_f082f"];
    let name = name.strip_suffix("_c").unwrap_or(name);
    conversion.iter().any(|ending| name.ends_with(ending))
        || LOCAL.split_whitespace().any(|known| match known.split_once('*') {
            Some((begin, end)) => name.starts_with(begin) && name.ends_with(end),
            None => name == known,
        })
}

/// The functions that a header declares: name, and the type and name of each parameter.
fn prototypes(text: &str) -> BTreeMap<String, Vec<String>> {
    let mut found = BTreeMap::new();
    let text = without_comments(text);
    for (at, _) in text.match_indices("MPI_") {
        let before = &text[..at];
        let name: String =
            text[at..].chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
        let declared = ["int ", "double ", "MPI_Aint ", "MPI_Fint ", "MPI_Comm "]
            .iter()
            .any(|result| before.ends_with(result));
        let rest = text[at + name.len()..].trim_start();
        if !declared || !rest.starts_with('(') {
            continue;
        }
        found.entry(name).or_insert_with(|| parameters(rest));
    }
    found
}

fn without_comments(text: &str) -> String {
    let mut parts = text.split("/*");
    let mut kept = parts.next().unwrap_or_default().to_owned();
    kept.extend(parts.filter_map(|part| part.split_once("*/").map(|(_, rest)| rest)));
    kept
}

fn parameters(list: &str) -> Vec<String> {
    let (mut depth, mut all) = (0, vec![String::new()]);
    for character in list.chars() {
        match character {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        match (character, depth) {
            (')', 0) => break,
            ('(', 1) if all[0].is_empty() => {}
            (',', 1) => all.push(String::new()),
            _ => all.last_mut().unwrap().push(character),
        }
    }
    let clean = |text: &String| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut all: Vec<String> = all.iter().map(clean).collect();
    // MPI_Pcontrol's further arguments are for profilers that know them.
    all.retain(|parameter| parameter != "...");
    if all == ["void"] { Vec::new() } else { all }
}

fn assert_agrees(call: &Call, parameters: &[String], header: &str) {
    let shown = format!("{} in {header}: {parameters:?}", call.name);
    assert_eq!(usize::from(call.arity), parameters.len(), "words of {shown}");
    let is = |index: u8, kind: &str| {
        let parameter = &parameters[usize::from(index)];
        let begin = parameter.starts_with(kind);
        begin && !parameter.contains('*') && !parameter.contains('[')
    };
    if let Some(index) = call.communicator {
        assert!(is(index, "MPI_Comm "), "communicator of {shown}");
    }
    let count = if call.is_mpi_count { "MPI_Count " } else { "int " };
    // By rank it is an array, which headers write as a pointer or with brackets.
    let is_array = |index: u8, kind: &str| {
        let parameter = parameters[usize::from(index)].trim_start_matches("const ");
        parameter.starts_with(kind) && (parameter.contains('*') || parameter.contains('['))
    };
    let is_sent = matches!(call.extent, Extent::ByRankBothWays | Extent::ByRankAndType);
    let by_rank = is_sent || call.extent == Extent::ByRank;
    if let Some(index) = call.count {
        let agrees = if by_rank { is_array(index, count) } else { is(index, count) };
        assert!(agrees, "count of {shown}");
        let buffer = &parameters[usize::from(index) - 1];
        assert!(!by_rank || !buffer.contains("sendbuf"), "received, and not sent, in {shown}");
        assert!(parameters[usize::from(index)].contains("count"), "count of {shown}");
    }
    if let Some(index) = call.datatype {
        let by_type = call.extent == Extent::ByRankAndType;
        let kind = "MPI_Datatype ";
        let agrees = if by_type { is_array(index, kind) } else { is(index, kind) };
        assert!(agrees, "datatype of {shown}");
    }
    if is_sent {
        // The same parameters, for the other direction.
        for index in [call.count.map(|count| count - 1), call.count, call.datatype] {
            let index = usize::from(index.expect("a list of blocks"));
            let sent = &parameters[index - usize::from(SENT_WORDS_BEFORE)];
            let received = sent.replace("const ", "").replace("send", "recv");
            assert_eq!(parameters[index].replace("const ", ""), received, "sent in {shown}");
        }
    }
    if let Some(index) = call.in_place {
        let buffer = &parameters[usize::from(index)];
        assert!(buffer.contains("void") && buffer.contains("buf"), "buffer of {shown}");
    }
    let texts = parameters.iter().filter(|parameter| parameter.contains("char ")).count();
    // Fortran's MPI_Init has no arguments of the program.
    let texts = if call.name.starts_with("MPI_Init") { 0 } else { texts };
    assert_eq!(usize::from(call.text), texts, "texts of {shown}");
}

#[test]
fn the_table_agrees_with_the_headers_of_installed_mpis() {
    for (folder, files) in HEADERS {
        let read = |file: &&str| fs::read_to_string(Path::new(folder).join(file)).ok();
        let text: String = files.iter().filter_map(read).collect();
        let functions = prototypes(&text);
        if functions.is_empty() {
            // Around the test runner, which shows what passing tests print to nobody.
            let _ = writeln!(std::io::stderr(), "SKIPPED: no mpi.h in {folder} to compare with");
            continue;
        }
        assert!(functions.len() > 300, "{folder} is not understood: {functions:?}");
        for (name, parameters) in &functions {
            match call(id_of(name)) {
                Some(entry) => assert_agrees(entry, parameters, folder),
                None => assert!(is_local(name), "{name} of {folder} is not in the table"),
            }
        }
    }
}

#[test]
fn no_call_in_the_table_is_local() {
    for call in CALLS.iter().filter(|call| call.provider.is_mpi()) {
        assert!(!is_local(call.name), "{} is called local here", call.name);
    }
}
