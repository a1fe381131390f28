use proptest::prelude::*;

use super::*;

fn rules(text: &str) -> Rules {
    let (rules, bad) = Rules::parse(text.as_bytes());
    assert_eq!(bad, []);
    rules
}

fn frame(module: &str, function: &str) -> Frame {
    Frame::new(FrameKind::Function, function, module)
}

fn label(rules: &Rules, module: &str, function: &str) -> Option<Label> {
    rules.labels(&[frame(module, function)])[0]
}

#[test]
fn rules_are_read_as_they_are_written() {
    for (line, function) in [
        ("spin = wait_partner", "spin"),
        ("  spin=WAIT_PARTNER\r", "spin"),
        ("\u{feff}spin = wait_partner", "spin"),
        ("app::comm::* = wait_partner", "app::comm::poll"),
        ("sp?n = wait_partner", "span"),
        ("operator== = wait_partner", "operator=="),
        ("operator= = wait_partner", "operator="),
        ("operator[] = wait_partner", "operator[]"),
        ("f[abi:cxx11] = wait_partner", "f[abi:cxx11]"),
        ("main::{closure#0} = wait_partner", "main::{closure#0}"),
        ("<T as app::Spin>::spin = wait_partner", "<T as app::Spin>::spin"),
        ("Map<int, long>::get = wait_partner", "Map<int, long>::get"),
        ("(anonymous namespace)::spin = wait_partner", "(anonymous namespace)::spin"),
        ("libspin.so.1+0x* = wait_partner", "libspin.so.1+0x4f2"),
        ("größe = wait_partner", "größe"),
    ] {
        let rules = rules(line);
        assert_eq!(label(&rules, "app", function), Some(Label::WaitPartner), "{line}");
        assert_eq!(label(&rules, "app", "other"), None, "{line}");
    }
    for label in Label::ALL {
        assert_eq!(rules(&format!("f = {label}")).0[0].label, label);
    }
}

#[test]
fn a_rule_may_be_about_one_module() {
    let rules = rules("libhdf5.so*:* = io\nlib[x].so : app::f = device");
    assert_eq!(label(&rules, "libhdf5.so.200", "H5Dwrite"), Some(Label::Io));
    assert_eq!(label(&rules, "libhdf5_hl.so.200", "H5LTread"), None);
    assert_eq!(label(&rules, "lib[x].so", "app::f"), Some(Label::Device));
    assert_eq!(label(&rules, "app", "app::f"), None);
}

#[test]
fn the_last_rule_that_fits_wins() {
    let rules = rules("* = computation\nspin* = wait\nspin_lock = wait_lock\napp:sp* = io");
    for (module, function, truth) in [
        ("lib.so", "relax", Label::Computation),
        ("lib.so", "spin_up", Label::Wait),
        ("lib.so", "spin_lock", Label::WaitLock),
        ("app", "spin_lock", Label::Io),
    ] {
        assert_eq!(label(&rules, module, function), Some(truth), "{module}:{function}");
    }
}

#[test]
fn comments_and_empty_lines_are_no_rules() {
    let (rules, bad) = Rules::parse(b"# spin = wait\n\n  \t\r\n#\xff\n");
    assert_eq!((rules.is_empty(), bad), (true, vec![]));
}

#[test]
fn what_is_no_rule_is_told_and_the_others_hold() {
    let unknown = |label: &str| Fault::UnknownLabel(label.to_owned());
    for (line, fault) in [
        (&b"spin"[..], Fault::NoLabel),
        (b"spin wait_partner", Fault::NoLabel),
        (b"spin =", unknown("")),
        (b"spin = waiting", unknown("waiting")),
        (b"spin = wait # for others", unknown("wait # for others")),
        (b"= wait", Fault::NoPattern),
        (b"lib.so: = wait", Fault::NoPattern),
        (b":spin = wait", Fault::NoModule),
        (b"sp\xefn = wait", Fault::NotUtf8),
    ] {
        let text = [b"before = io\n", line, b"\nafter = io\n"].concat();
        let (rules, bad) = Rules::parse(&text);
        assert_eq!(String::from(rules), "before = io\nafter = io\n");
        let [BadLine { number: 2, text, fault: found }] = &bad[..] else { panic!("{bad:?}") };
        assert_eq!((found, &**text), (&fault, &*String::from_utf8_lossy(line)));
    }
}

#[test]
fn parts_of_a_function_are_its_own() {
    let rules = rules("spin = wait_partner");
    for (kind, truth) in [
        (FrameKind::Function, Some(Label::WaitPartner)),
        (FrameKind::Inlined, Some(Label::WaitPartner)),
        (FrameKind::Mpi, Some(Label::WaitPartner)),
        (FrameKind::Loop, None),
        (FrameKind::Line, None),
    ] {
        assert_eq!(rules.labels(&[Frame { kind, ..frame("app", "spin") }]), [truth], "{kind:?}");
    }
}

#[test]
fn rules_travel() {
    let rules = rules("operator== = io\n  lib*.so:app::f=wait_lock\n# gone");
    let bytes = postcard::to_stdvec(&rules).unwrap();
    assert_eq!(postcard::from_bytes::<Rules>(&bytes).unwrap(), rules);
    let json = serde_json::to_value(&rules).unwrap();
    assert_eq!(json, "operator== = io\nlib*.so:app::f = wait_lock\n");
    assert_eq!(serde_json::from_value::<Rules>(json).unwrap(), rules);
}

proptest! {
    #[test]
    fn any_bytes_are_read(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        Rules::parse(&bytes);
    }

    /// Texts that resemble rules: every line that is not empty or a comment is a rule or a bad
    /// line, and reading the written form again gives the same rules.
    #[test]
    fn no_line_is_lost(
        text in "([a:=#*? \\[\\]é\r\n]|io|wait){0,40}",
        name in "[a:=*\\[\\]é]{0,6}",
    ) {
        let (rules, bad) = Rules::parse(text.as_bytes());
        let lines = text.split('\n').map(|line| line.trim_ascii());
        let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#')).count();
        prop_assert_eq!(rules.0.len() + bad.len(), lines);
        label(&rules, &name, &name);
        let again = Rules::from(String::from(rules.clone()));
        prop_assert_eq!(again, rules);
    }
}

#[test]
fn only_collective_synchronisations_are_declared() {
    let rules = rules("*Create = collective_synchronisation\nlib*:hypre_Comm* = communication\n");
    assert!(rules.declare_synchronisations());
    assert!(!self::rules("spin = wait_partner\n").declare_synchronisations());
    let synchronises = Some(Label::CollectiveSynchronisation);
    assert_eq!(rules.label_of("app", "hypre_CommPkgCreate"), synchronises);
    // The last rule that matches decides.
    assert_eq!(rules.label_of("libHYPRE.so", "hypre_CommPkgCreate"), Some(Label::Communication));
    assert_eq!(rules.label_of("app", "main"), None);
}
