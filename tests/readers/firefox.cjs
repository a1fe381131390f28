// Opens a profile with the processing code of Firefox Profiler and prints seconds by lane and frame, as JSON.
// usage: node firefox.cjs FOLDER-OF-node_modules FILE
//
// The package profiler-cli is that code with a command line: a server in the background loads the
// profile, upgrades it to the newest version of the format, and answers.
const { execFileSync } = require('child_process')
const fs = require('fs')
const os = require('os')
const path = require('path')

const [folder, file] = process.argv.slice(2)
const command = path.join(folder, 'node_modules/@firefox-devtools/profiler-cli/dist/profiler-cli.js')
// Its socket lies there: the path must be short.
const session = fs.mkdtempSync(path.join(os.tmpdir(), 'profiler-'))
const env = { ...process.env, PROFILER_CLI_SESSION_DIR: session }
const run = words => execFileSync('node', [command, ...words], { env, maxBuffer: 1 << 30, encoding: 'utf8', stdio: 'pipe' })
const ask = (...words) => JSON.parse(run([...words, '--json']))

/** The name of a lane: what its process shows, and the thread. */
function laneName({ name, processName }) {
  const [, kind] = /(totals|timeline), in the order/.exec(processName) ?? [null, processName]
  return `${kind}: ${name}`
}

function read() {
  const lanes = {}
  const { threads, hiddenByLimit } = ask('thread', 'list', '--limit', '0')
  if (hiddenByLimit > 0) throw new Error(`${hiddenByLimit} threads are hidden`)
  for (const thread of threads) {
    const of = ['--thread', thread.threadHandle]
    const lane = laneName(thread)
    const { flatMarkers } = ask('thread', 'markers', ...of, '--list', '--limit', '0')
    if (flatMarkers.length !== thread.markerCount) throw new Error(`${flatMarkers.length} markers of ${thread.markerCount}`)
    const isPhases = thread.name === 'phases'
    for (const { name, duration, data, hasStack, category } of flatMarkers) {
      if (!isPhases && !(hasStack && data.calls > 0 && category !== 'Other')) throw new Error(`the marker ${name} is bare`)
      const into = (lanes[isPhases ? 'phases' : `calls, ${lane}`] ??= {})
      const amount = isPhases ? (duration ?? 0) * 1e-3 : data.calls
      into[name] = (into[name] ?? 0) + amount
    }
    if (isPhases) continue
    const { functions, weightType, totalFunctionCount } = ask('thread', 'functions', ...of, '--limit', '0')
    if (weightType !== 'tracing-ms') throw new Error(`weights are ${weightType}`)
    if (functions.length !== totalFunctionCount) throw new Error(`${functions.length} functions of ${totalFunctionCount}`)
    const frames = (lanes[lane] = { '': 0 })
    for (const { name, selfSamples, totalSamples } of functions) {
      frames[''] += selfSamples * 1e-3
      frames[name] = totalSamples * 1e-3
    }
    // The call tree's root is what the functions add up to.
    const { regularCallTree: tree } = ask('thread', 'samples-top-down', ...of)
    if (Math.abs(tree.totalSamples * 1e-3 - frames['']) > 1e-6) throw new Error(`${lane}: the tree has ${tree.totalSamples} ms`)
  }
  return lanes
}

/** Milliseconds for the server to start: the command itself waits for half a second. */
const MAX_START_MS = 120_000
/** Milliseconds between two looks at the server. */
const POLL_MS = 200

/** Loads the profile. On a busy machine the server starts after the command has given up. */
function load() {
  try {
    return run(['load', path.resolve(file)])
  } catch (error) {
    if (!String(error.stderr).includes('did not become ready')) throw error
    const begun = Date.now()
    for (;;) {
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, POLL_MS)
      try {
        return ask('thread', 'list')
      } catch (still) {
        if (Date.now() - begun > MAX_START_MS) throw still
      }
    }
  }
}

try {
  load()
  process.stdout.write(JSON.stringify(read()))
} finally {
  try {
    run(['stop', '--all'])
  } finally {
    fs.rmSync(session, { recursive: true, force: true })
  }
}
