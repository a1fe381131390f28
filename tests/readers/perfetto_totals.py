"""Reads a trace with Perfetto's published protobuf descriptors and prints seconds by track and slice, as
JSON. trace_processor itself is a binary that the package fetches when it runs; this is the same schema."""

import collections
import json
import sys

from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TracePacket, TrackEvent

trace = Trace()
with open(sys.argv[1], "rb") as file:
    assert trace.ParseFromString(file.read()) > 0
names, tracks, pids = {}, {}, {}
open_slices = collections.defaultdict(list)
lanes = collections.defaultdict(lambda: collections.Counter())


def no_unknown_fields(message):
    try:
        from google.protobuf.unknown_fields import UnknownFieldSet
        assert len(UnknownFieldSet(message)) == 0, message
    except ImportError:
        pass


for packet in trace.packet:
    no_unknown_fields(packet)
    if packet.sequence_flags & TracePacket.SEQ_INCREMENTAL_STATE_CLEARED:
        names = {}
    names.update((name.iid, name.name) for name in packet.interned_data.event_names)
    if packet.HasField("track_descriptor"):
        track = packet.track_descriptor
        no_unknown_fields(track)
        if track.HasField("process"):
            pids[track.process.pid] = track.process.process_name
        if track.HasField("thread"):
            process = pids[track.thread.pid]
            prefix = "totals: " if "totals" in process else "timeline: "
            tracks[track.uuid] = prefix + track.thread.thread_name
        else:
            tracks[track.uuid] = track.name
    if not packet.HasField("track_event"):
        continue
    event = packet.track_event
    no_unknown_fields(event)
    stack = open_slices[event.track_uuid]
    lane = lanes[tracks[event.track_uuid]]
    if event.type == TrackEvent.TYPE_SLICE_BEGIN:
        stack.append((packet.timestamp, event.name or names[event.name_iid]))
    elif event.type == TrackEvent.TYPE_SLICE_END:
        begin, name = stack.pop()
        assert packet.timestamp >= begin
        if not stack:
            lane[""] += (packet.timestamp - begin) * 1e-9
        if all(name != outer for _, outer in stack):
            lane[name] += (packet.timestamp - begin) * 1e-9
    elif event.type == TrackEvent.TYPE_COUNTER:
        assert 0 <= event.double_counter_value <= 100
assert not any(open_slices.values())
print(json.dumps(lanes))
