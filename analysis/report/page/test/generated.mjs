// Summaries of jobs that never ran, of any size, with the files beside them.
import { writeFile } from "node:fs/promises";
import { createWriteStream } from "node:fs";
import { once } from "node:events";
import { join } from "node:path";

/** A source of numbers from 0 to 1 that are the same in each run (mulberry32). */
export function random(seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = state;
    t = Math.imul(t ^ (t >>> 15), t | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
}

function frame(kind, name, line) {
  return {
    kind, function: name, file: kind === "mpi" ? null : `/src/solver/${name.split("::")[0]}.cc`,
    line: kind === "mpi" ? null : line, offset: null,
    module: kind === "mpi" ? "libmpi.so.40" : "solver",
  };
}

/** Distinct frames: functions, loops and calls of MPI. */
function frames(number) {
  const all = [frame("function", "main", 10)];
  const calls = ["MPI_Allreduce", "MPI_Waitall", "MPI_Isend", "MPI_Bcast"];
  for (const name of calls) all.push(frame("mpi", name, null));
  for (let index = all.length; index < number; index += 1) {
    const kind = ["function", "loop", "function", "inlined"][index % 4];
    all.push(frame(kind, `module${index % 97}::function_${index - (kind === "loop" ? 1 : 0)}`, index));
  }
  return all;
}

function metric(mean, spread, ranks, all) {
  const max = mean * (1 + spread);
  return {
    mean_s: mean, min_s: ranks < all ? 0 : mean * (1 - spread / 2),
    min_observed_s: mean * (1 - spread / 2), max_s: max, sum_s: mean * all,
    stddev_s: (mean * spread) / 3, ranks,
  };
}

/** A tree of contexts; every parent's time holds its children's. */
function tree({ contexts, ranks, elapsed, seed }) {
  const next = random(seed);
  const all = frames(Math.max(Math.min(contexts / 5, 20_000), 12));
  const nodes = [];
  const times = [];
  const open = [];
  for (let index = 0; index < contexts; index += 1) {
    // Contexts in depth-first order, as they are found: some levels up, then down.
    while (open.length > 1 && next() < (open.length > 18 ? 0.7 : 0.44)) open.pop();
    const parent = open.length > 0 ? open[open.length - 1] : null;
    const time = parent === null ? elapsed : times[parent].left * next() ** 2 * 0.9;
    if (parent !== null) times[parent].left -= time;
    times.push({ time, left: time });
    const isCall = index > 0 && next() < 0.15;
    nodes.push({ parent, frame: index === 0 ? 0 : isCall ? 1 + Math.floor(next() * 4)
      : 5 + Math.floor(next() * (all.length - 5)), isCall });
    if (!isCall) open.push(index);
  }
  return { frames: all, nodes: nodes.map(({ parent, frame: at, isCall }, index) => {
    const { time, left } = times[index];
    const sampled = next() < 0.3 ? Math.max(Math.floor(next() * ranks), 1) : ranks;
    const spread = next();
    const wait = isCall ? time * next() : 0;
    return {
      parent, frame: at, label: isCall ? (at === 1 ? "collective_synchronisation" : "wait_partner")
        : "computation",
      calls: Math.floor(next() * 1e6), calls_exact: isCall, balanced: next() < 0.5,
      inclusive: metric(time, spread, sampled, ranks),
      exclusive: metric(isCall ? time : left, isCall ? spread : next(), sampled, ranks),
      idle_s: wait, imb_s: index % 50 === 0 ? null : time * spread, wait_s: wait,
      sum_imb_s: time * spread * next(), sum_wait_s: wait,
      blame_inclusive_s: next() < 0.2 ? time * next() : 0,
      blame_exclusive_s: next() < 0.1 ? left * next() : 0,
      blame_fraction: 0, counters: {},
    };
  }) };
}

function path(tree, node) {
  const frames = [];
  for (let at = node; at !== null; at = tree.nodes[at].parent) frames.unshift(tree.frames[tree.nodes[at].frame]);
  return frames;
}

/** A loss whose symptom and cause are contexts of the tree. */
function loss(tree, index, symptom, cause, ranks, elapsed) {
  const seconds = elapsed / (6 + 4 * index);
  const times = (node) => tree.nodes[node].inclusive;
  return {
    kind: ["load_imbalance", "serialization", "wait_for_partner"][index % 3],
    severity: seconds / elapsed, seconds, elapsed_without_s: elapsed - seconds, phase: 0, group: null,
    label: tree.nodes[symptom].label, polling: false, evened_out: false, by_turns: false,
    slow_ranks: String(ranks - 1 - index), waiting_ranks: `0-${ranks - 2 - index}`,
    advice: "Distribute its work more evenly.",
    symptom: {
      path: path(tree, symptom), node: symptom, mean_s: times(symptom).mean_s,
      min_s: times(symptom).min_s, max_s: times(symptom).max_s, calls: 1200 + index,
      calls_exact: true, per_call_s: 0.0012, bytes: null, breakdown: {},
    },
    causes: [{
      path: path(tree, cause), node: cause, group: null, seconds, share: 1,
      mean_s: times(cause).mean_s, max_s: times(cause).max_s,
    }],
    when: { kind: "growing", from_s: elapsed / 4, to_s: elapsed, share: 0.97 },
  };
}

function largest(tree, number, wanted) {
  return tree.nodes.map((node, index) => ({ node, index }))
    .filter(({ node, index }) => index > 0 && wanted(node))
    .sort((a, b) => b.node.inclusive.mean_s - a.node.inclusive.mean_s)
    .slice(0, number).map(({ index }) => index);
}

function ranges(ranks, parts) {
  return Array.from({ length: parts }, (_, part) => {
    const [first, behind] = [part, part + 1].map((at) => Math.floor((ranks * at) / parts));
    return { list: first === behind - 1 ? `${first}` : `${first}-${behind - 1}`, size: behind - first };
  });
}

/** When iterations begin that last this long each and follow one another from a tenth of the run on. */
function begins(durations, elapsed) {
  let at = elapsed / 10;
  return durations.map((duration) => (at += duration) - duration);
}

/** The summary of a job of this size. */
export function summary({ ranks, contexts, elapsed = 321.5, seed = 1, losses = 5, hasBegins = true }) {
  const all = tree({ contexts, ranks, elapsed, seed });
  const symptoms = largest(all, losses, (node) => node.label !== "computation");
  const causes = largest(all, losses, (node) => node.label === "computation");
  const hosts = ranges(ranks, Math.max(Math.floor(ranks / 64), 1));
  const clusters = ranges(ranks, Math.min(ranks, 5));
  const next = random(seed + 1);
  const found = symptoms.slice(0, causes.length)
    .map((symptom, index) => loss(all, index, symptom, causes[index], ranks, elapsed));
  const durations_s = Array.from({ length: 200 }, (_, index) => (index === 137 ? 9 : 1.2 + next() / 5));
  const lost = found.reduce((sum, { seconds }) => sum + seconds, 0);
  return {
    schema: "plimsoll-summary/1",
    run: {
      executable: "/opt/solver/bin/solver", arguments: ["--grid", "4096"], job: "4711",
      started: "2026-03-01T09:30:00+01:00", elapsed_s: elapsed, ranks, threads: ranks,
      nodes: hosts.map(({ list }, index) => ({ host: `node${index}`, ranks: list, cores: 64 })),
      mpi: { library: "Open MPI v5.0.7", abi: "openmpi" },
      period_us: { asked: 4000, effective: 4001.5 }, clock: "cpu", complete: true, ended: "finalize",
      settings: { PLIMSOLL_PERIOD: "4ms" },
    },
    collection: {
      samples: ranks * 75_000, lost: 12, truncated: 3,
      marks: { planted: 1000, hit: 900, stale: 1, verified: 0, mismatched: 0, off_reason: null },
      mpi_calls: ranks * 4000, spool_bytes: 1e6, record_bytes: 1e7, sampling_cpu_s: 100.25,
      collector_cpu_s: 200.5, finalize_s: 0.75, memory_bytes: 3_000_000,
    },
    efficiency: {
      parallel: 0.62, load_balance: 0.7, communication: 0.886,
      windows: Array.from({ length: 24 }, (_, index) => ({
        begin_s: (elapsed * index) / 24, end_s: (elapsed * (index + 1)) / 24,
        parallel: 0.8 - index / 70, load_balance: 0.9 - index / 90, communication: 0.9,
      })),
    },
    projection: { elapsed_s: elapsed - lost },
    losses: found,
    segments: causes.length > 0
      ? [{ phase: 0, imb_sync_s: 3, sum_imb_s: 2, sum_wait_s: 1, row: 2, nodes: causes }] : [],
    phases: Array.from({ length: 12 }, (_, id) => ({
      id, begins_after: null, ends_in: null, begin_s: (elapsed * id) / 12, duration_s: elapsed / 12,
      instances: 100 + id, kind: "spmd", groups: [],
    })),
    loops: causes.length === 0 ? [] : [{
      path: path(all, causes[0]), node: causes[0], ranks: `0-${ranks - 1}`, executions: 1,
      mean_duration_s: elapsed * 0.9, fraction: 0.9,
      iterations: { accepted: 200, rejected: 3, calls_seen: null, exact: true },
      durations_s,
      first_iterations: "0-199", stride: 1, begins_s: hasBegins ? begins(durations_s, elapsed) : [],
      clusters: [
        { iterations: "0-136,138-199", mean_s: 1.3, representative: 5, period: null },
        { iterations: "137", mean_s: 9, representative: 137, period: null },
      ],
    }],
    clusters: clusters.map(({ list, size }) => ({
      ranks: list, size, representative: Number.parseInt(list, 10), distance: 0.4,
    })),
    thread_clusters: [],
    clocks: {
      reference: 0, offsets_us: Array.from({ length: ranks }, () => Math.round(next() * 900)),
      drift_ppm: Array.from({ length: ranks }, () => 0), residual_us: 3.5, method: "regions",
    },
    timeline: { file: null }, per_rank: { file: null }, tree: all,
    notes: ["The job was generated."],
  };
}

/** Adds a context with the path of another one, as contexts of other threads have. Returns its index. */
function twin({ nodes }, node) {
  const { parent } = nodes[node];
  return nodes.push({ ...nodes[node], parent: parent === null ? null : twin({ nodes }, parent) }) - 1;
}

/**
 * The slowest and the fastest thread of each rank: the latter waits from the middle of the run on.
 * The contexts of threads are their own; `nodes` is extended by them.
 */
function threads(summary, nodes, columns) {
  const { ranks, elapsed_s } = summary.run;
  const isWork = (node) => summary.tree.nodes[node].label === "computation";
  const [work, wait] = [nodes.find(isWork), nodes.find((node) => !isWork(node))].map((node) => {
    return nodes.push(twin(summary.tree, node)) - 1;
  });
  const grid = { end_s: elapsed_s, columns, rows: [], cells: [], wait: [], unlisted: 7 };
  for (let rank = 0; rank < ranks; rank += 1) {
    for (const [kind, number] of [["slowest", 3], ["fastest", 1]]) {
      grid.rows.push({ rank, kind, number });
      for (let column = 0; column < columns; column += 1) {
        const waits = kind === "fastest" && column >= columns / 2;
        grid.cells.push(waits ? wait : work);
        grid.wait.push(waits ? 255 : 0);
      }
    }
  }
  return grid;
}

/**
 * A timeline of this many cells: columns of iterations, in which the last row is slow. With
 * `threadColumns`, ranks have threads.
 */
export function timeline(summary, rows, columns, threadColumns = 0, seed = 3) {
  const next = random(seed);
  const { ranks, elapsed_s } = summary.run;
  const nodes = largest(summary.tree, 24, () => true);
  const calls = nodes.map((node) => summary.tree.nodes[node].label !== "computation");
  const cells = new Array(rows * columns);
  const wait = new Array(rows * columns);
  for (let row = 0; row < rows; row += 1) {
    let at = 0;
    for (let column = 0; column < columns; column += 1) {
      if (next() < 0.25) at = Math.floor(next() * nodes.length);
      cells[row * columns + column] = next() < 0.01 ? -1 : at;
      wait[row * columns + column] = Math.floor(calls[at] ? 160 + next() * 95 : next() * 30);
    }
  }
  return {
    schema: "plimsoll-timeline/1", begin_s: 0, end_s: elapsed_s, columns,
    rows: ranges(ranks, rows).map(({ list }) => ({ ranks: list })), nodes, cells, wait,
    ...(threadColumns > 0 ? { threads: threads(summary, nodes, threadColumns) } : {}),
  };
}

/** The file of single ranks' times. */
export async function writeRanks(file, summary, most) {
  const { ranks } = summary.run;
  const nodes = summary.tree.nodes.map((_, index) => index)
    .slice(0, Math.max(Math.floor(most / (12 * ranks)), 1));
  const places = summary.losses.flatMap(({ symptom, causes }) => [symptom, ...causes]);
  const kept = [...new Set([...nodes, ...places.map(({ node }) => node)])].sort((a, b) => a - b);
  const next = random(5);
  await writeRankTable(file, ranks, kept, {
    inclusive_s: (rank, node) => {
      const { inclusive } = summary.tree.nodes[node];
      return rank === ranks - 1 ? inclusive.max_s : inclusive.mean_s * (0.98 + next() / 50);
    },
    exclusive_s: (_, node) => summary.tree.nodes[node].exclusive.mean_s * (0.98 + next() / 50),
    calls: (rank, node) => {
      const { calls } = summary.tree.nodes[node];
      return Math.floor(calls / ranks) + (rank < calls % ranks ? 1 : 0);
    },
  });
}

/** A file of single ranks' times; `quantities` has the value of a rank in a context for each. */
export async function writeRankTable(file, ranks, nodes, quantities) {
  const stream = createWriteStream(file);
  const directory = [];
  let offset = 0;
  const write = async (...parts) => {
    for (const part of parts) {
      offset += part.length;
      if (!stream.write(part)) await once(stream, "drain");
    }
  };
  const array = async (name, kind, numbers, shape) => {
    const form = `{'descr': '${kind}', 'fortran_order': True, 'shape': (${shape}), }`;
    const text = `${form.padEnd(Math.ceil((form.length + 11) / 64) * 64 - 11)}\n`;
    const header = Buffer.from([0x93, 78, 85, 77, 80, 89, 1, 0, text.length & 255, text.length >> 8]);
    const parts = [header, Buffer.from(text), Buffer.from(numbers.buffer)];
    const size = parts.reduce((sum, part) => sum + part.length, 0);
    // What a local and the central header have in common. No reader of Plimsoll checks the sum.
    const common = Buffer.alloc(26);
    common.writeUInt16LE(20, 0);
    common.writeUInt32LE(size, 14);
    common.writeUInt32LE(size, 18);
    const path = Buffer.from(`${name}.npy`);
    common.writeUInt16LE(path.length, 22);
    const place = Buffer.alloc(14);
    place.writeUInt32LE(offset, 10);
    directory.push(Buffer.from("PK\x01\x02\x14\x00"), common, place, path);
    await write(Buffer.from("PK\x03\x04"), common, path, ...parts);
  };
  await array("ranks", "<u4", Uint32Array.from({ length: ranks }, (_, rank) => rank), `${ranks},`);
  await array("nodes", "<u4", Uint32Array.from(nodes), `${nodes.length},`);
  for (const [name, value] of Object.entries(quantities)) {
    const numbers = new Float32Array(ranks * nodes.length);
    numbers.forEach((_, at) => {
      numbers[at] = value(Math.floor(at / nodes.length), nodes[at % nodes.length]);
    });
    await array(name, "<f4", numbers, `${nodes.length}, ${ranks},`);
  }
  const end = Buffer.alloc(22);
  end.write("PK\x05\x06", "latin1");
  [8, 10].forEach((at) => end.writeUInt16LE(directory.length / 4, at));
  end.writeUInt32LE(directory.reduce((sum, part) => sum + part.length, 0), 12);
  end.writeUInt32LE(offset, 16);
  await write(...directory, end);
  stream.end();
  await once(stream, "close");
}

/** Writes a summary with the files beside it. Returns the path of the summary. */
export async function writeJob(directory, name, size) {
  const made = summary(size);
  if (size.cells) {
    made.timeline.file = `${name}.plimsoll.timeline`;
    const { rows, columns, threadColumns } = size.cells;
    const content = JSON.stringify(timeline(made, rows, columns, threadColumns));
    await writeFile(join(directory, made.timeline.file), content);
  }
  if (size.rankBytes) {
    made.per_rank.file = `${name}.plimsoll.npz`;
    await writeRanks(join(directory, made.per_rank.file), made, size.rankBytes);
  }
  const file = join(directory, `${name}.plimsoll.json`);
  await writeFile(file, JSON.stringify(made));
  return { file, summary: made };
}
