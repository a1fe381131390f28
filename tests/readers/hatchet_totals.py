"""Opens a file with hatchet's GraphFrame and prints seconds by lane and frame, as JSON. The frame
of a whole lane is ''. Contexts of a frame are added up, so frames must not call themselves."""

import json
import sys
import warnings

warnings.simplefilter("ignore")
import hatchet

with open(sys.argv[1]) as file:
    frame = hatchet.GraphFrame.from_json(file.read())
assert frame.inc_metrics == ["time (inc)"] and frame.exc_metrics == ["time"], frame.inc_metrics
table = frame.dataframe.reset_index()
lanes = {}
for rank, rows in table.groupby("rank") if "rank" in table else [(None, table)]:
    lane = "mean" if rank is None else f"rank {rank}"
    lanes[lane] = {"": rows["time"].sum()}
    for name, times in rows.groupby("name"):
        lanes[lane][name] = times["time (inc)"].sum()
# hatchet's own sum over subtrees must give the inclusive times that the file holds.
said = frame.dataframe["time (inc)"].copy()
if "rank" in frame.dataframe.index.names:
    frame.drop_index_levels()
    said = frame.dataframe["time (inc)"].copy()
frame.subtree_sum(["time"], ["time (inc)"])
assert ((frame.dataframe["time (inc)"] - said).abs() < 1e-6).all()
assert frame.tree()
print(json.dumps(lanes))
