//! The messages of pprof's profile.proto that an export needs:
//! <https://github.com/google/pprof/blob/main/proto/profile.proto>. Strings are indices into
//! [`Profile::string_table`]; index 0 is the empty string.

use prost::Message;

/// A profile.
#[derive(Clone, PartialEq, Message)]
pub struct Profile {
    /// Types of the values of a sample.
    #[prost(message, repeated, tag = "1")]
    pub sample_type: Vec<ValueType>,
    /// Call paths with values.
    #[prost(message, repeated, tag = "2")]
    pub sample: Vec<Sample>,
    /// Modules.
    #[prost(message, repeated, tag = "3")]
    pub mapping: Vec<Mapping>,
    /// Places in the program.
    #[prost(message, repeated, tag = "4")]
    pub location: Vec<Location>,
    /// Functions.
    #[prost(message, repeated, tag = "5")]
    pub function: Vec<Function>,
    /// All strings.
    #[prost(string, repeated, tag = "6")]
    pub string_table: Vec<String>,
    /// Duration of the run, in nanoseconds.
    #[prost(int64, tag = "10")]
    pub duration_nanos: i64,
    /// Lines that pprof prints with `-comments`.
    #[prost(int64, repeated, tag = "13")]
    pub comment: Vec<i64>,
}

/// A kind of value.
#[derive(Clone, PartialEq, Message)]
pub struct ValueType {
    /// Index of the type's name in the string table.
    #[prost(int64, tag = "1")]
    pub kind: i64,
    /// Index of the unit in the string table.
    #[prost(int64, tag = "2")]
    pub unit: i64,
}

/// A call path with values.
#[derive(Clone, PartialEq, Message)]
pub struct Sample {
    /// Ids of locations, innermost first.
    #[prost(uint64, repeated, tag = "1")]
    pub location_id: Vec<u64>,
    /// One value for each [`Profile::sample_type`].
    #[prost(int64, repeated, tag = "2")]
    pub value: Vec<i64>,
    /// Labels that distinguish samples of one path.
    #[prost(message, repeated, tag = "3")]
    pub label: Vec<Label>,
}

/// A name and a value that a sample has.
#[derive(Clone, PartialEq, Message)]
pub struct Label {
    /// The name.
    #[prost(int64, tag = "1")]
    pub key: i64,
    /// The value.
    #[prost(int64, tag = "2")]
    pub text: i64,
}

/// A module.
#[derive(Clone, PartialEq, Message)]
pub struct Mapping {
    /// Above 0.
    #[prost(uint64, tag = "1")]
    pub id: u64,
    /// File name.
    #[prost(int64, tag = "5")]
    pub filename: i64,
    /// Set, so that pprof does not look for symbols itself.
    #[prost(bool, tag = "7")]
    pub has_functions: bool,
    /// Whether files are known.
    #[prost(bool, tag = "8")]
    pub has_filenames: bool,
    /// Whether lines are known.
    #[prost(bool, tag = "9")]
    pub has_line_numbers: bool,
    /// Whether inlined frames are distinguished.
    #[prost(bool, tag = "10")]
    pub has_inline_frames: bool,
}

/// A place in the program.
#[derive(Clone, PartialEq, Message)]
pub struct Location {
    /// Above 0.
    #[prost(uint64, tag = "1")]
    pub id: u64,
    /// Id of the module.
    #[prost(uint64, tag = "2")]
    pub mapping_id: u64,
    /// The function and line.
    #[prost(message, repeated, tag = "4")]
    pub line: Vec<Line>,
}

/// A line of a function.
#[derive(Clone, PartialEq, Message)]
pub struct Line {
    /// Id of the function.
    #[prost(uint64, tag = "1")]
    pub function_id: u64,
    /// Source line, 0 if not known.
    #[prost(int64, tag = "2")]
    pub line: i64,
}

/// A function.
#[derive(Clone, PartialEq, Message)]
pub struct Function {
    /// Above 0.
    #[prost(uint64, tag = "1")]
    pub id: u64,
    /// Name.
    #[prost(int64, tag = "2")]
    pub name: i64,
    /// Name in the object file.
    #[prost(int64, tag = "3")]
    pub system_name: i64,
    /// Source file.
    #[prost(int64, tag = "4")]
    pub filename: i64,
    /// First line.
    #[prost(int64, tag = "5")]
    pub start_line: i64,
}
