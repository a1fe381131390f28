//! The messages of Perfetto's trace format that an export needs:
//! <https://perfetto.dev/docs/reference/trace-packet-proto>.

use prost::Message;

/// One packet of a trace; a trace is a sequence of them, each as field 1.
#[derive(Clone, PartialEq, Message)]
pub struct TracePacket {
    /// Nanoseconds.
    #[prost(uint64, optional, tag = "8")]
    pub timestamp: Option<u64>,
    /// Sequence of packets that share interned strings.
    #[prost(uint32, tag = "10")]
    pub trusted_packet_sequence_id: u32,
    /// An event on a track.
    #[prost(message, optional, tag = "11")]
    pub track_event: Option<TrackEvent>,
    /// Interned strings.
    #[prost(message, optional, tag = "12")]
    pub interned_data: Option<InternedData>,
    /// [`SEQUENCE_CLEARED`] or [`SEQUENCE_NEEDED`].
    #[prost(uint32, tag = "13")]
    pub sequence_flags: u32,
    /// A track.
    #[prost(message, optional, tag = "60")]
    pub track_descriptor: Option<TrackDescriptor>,
}

/// The packet begins a sequence: no interned strings are known before.
pub const SEQUENCE_CLEARED: u32 = 1;
/// The packet needs the interned strings of its sequence.
pub const SEQUENCE_NEEDED: u32 = 2;

/// Strings that packets name by id.
#[derive(Clone, PartialEq, Message)]
pub struct InternedData {
    /// Categories.
    #[prost(message, repeated, tag = "1")]
    pub event_categories: Vec<Interned>,
    /// Names of events.
    #[prost(message, repeated, tag = "2")]
    pub event_names: Vec<Interned>,
}

/// A string with its id.
#[derive(Clone, PartialEq, Message)]
pub struct Interned {
    /// Above 0.
    #[prost(uint64, tag = "1")]
    pub iid: u64,
    /// The string.
    #[prost(string, tag = "2")]
    pub name: String,
}

/// A track.
#[derive(Clone, PartialEq, Message)]
pub struct TrackDescriptor {
    /// Identifier by which events refer to the track.
    #[prost(uint64, tag = "1")]
    pub uuid: u64,
    /// Name of the track; `None` for a process or a thread.
    #[prost(string, optional, tag = "2")]
    pub name: Option<String>,
    /// Set for a process.
    #[prost(message, optional, tag = "3")]
    pub process: Option<ProcessDescriptor>,
    /// Set for a thread.
    #[prost(message, optional, tag = "4")]
    pub thread: Option<ThreadDescriptor>,
    /// The track that it belongs to.
    #[prost(uint64, optional, tag = "5")]
    pub parent_uuid: Option<u64>,
    /// Set for a track of values.
    #[prost(message, optional, tag = "8")]
    pub counter: Option<CounterDescriptor>,
}

/// A process.
#[derive(Clone, PartialEq, Message)]
pub struct ProcessDescriptor {
    /// Process id.
    #[prost(int32, tag = "1")]
    pub pid: i32,
    /// Name.
    #[prost(string, tag = "6")]
    pub process_name: String,
}

/// A thread.
#[derive(Clone, PartialEq, Message)]
pub struct ThreadDescriptor {
    /// Process id.
    #[prost(int32, tag = "1")]
    pub pid: i32,
    /// Thread id.
    #[prost(int64, tag = "2")]
    pub tid: i64,
    /// Name.
    #[prost(string, tag = "5")]
    pub thread_name: String,
}

/// A track of values.
#[derive(Clone, PartialEq, Message)]
pub struct CounterDescriptor {
    /// Unit of the counter.
    #[prost(string, tag = "6")]
    pub unit_name: String,
}

/// An event.
#[derive(Clone, PartialEq, Message)]
pub struct TrackEvent {
    /// Ids of categories. Not packed, as proto2 has it: Perfetto's own parser takes packed ids for
    /// garbage.
    #[prost(uint64, repeated, packed = "false", tag = "3")]
    pub category_iids: Vec<u64>,
    /// Annotations beside the name.
    #[prost(message, repeated, tag = "4")]
    pub debug_annotations: Vec<DebugAnnotation>,
    /// Type of the event ([`EventType`]).
    #[prost(enumeration = "EventType", tag = "9")]
    pub kind: i32,
    /// Id of the name.
    #[prost(uint64, optional, tag = "10")]
    pub name_iid: Option<u64>,
    /// The track.
    #[prost(uint64, tag = "11")]
    pub track_uuid: u64,
    /// The name where it has no id.
    #[prost(string, optional, tag = "23")]
    pub name: Option<String>,
    /// The value of a [`EventType::Counter`].
    #[prost(double, optional, tag = "44")]
    pub double_counter_value: Option<f64>,
}

/// Type of an event on a track.
#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub enum EventType {
    /// No event.
    Unspecified = 0,
    /// A slice begins.
    SliceBegin = 1,
    /// The innermost slice ends.
    SliceEnd = 2,
    /// A point in time.
    Instant = 3,
    /// A value changes.
    Counter = 4,
}

/// A name and a value.
#[derive(Clone, PartialEq, Message)]
pub struct DebugAnnotation {
    /// The value, if it is a number.
    #[prost(uint64, optional, tag = "3")]
    pub uint_value: Option<u64>,
    /// The value, if it is a text.
    #[prost(string, optional, tag = "6")]
    pub string_value: Option<String>,
    /// The name.
    #[prost(string, tag = "10")]
    pub name: String,
}
