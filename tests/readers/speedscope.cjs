// Opens a file with speedscope's own importers and prints seconds by lane and frame, as JSON.
// usage: node speedscope.cjs FOLDER-OF-node_modules FILE
//
// The package holds the application as one script. Its importer is reached by the name that the
// application's hook loadFileFromBase64 calls. The application then fails to draw, for lack of a
// window; the importers do not need one.
const fs = require('fs')
const path = require('path')
const vm = require('vm')

const [folder, file] = process.argv.slice(2)
const release = path.join(folder, 'node_modules/speedscope/dist/release')
const script = fs.readdirSync(release).find(name => /^speedscope-.*\.js$/.test(name))
const source = fs.readFileSync(path.join(release, script), 'utf8')
const hook = /loadFileFromBase64:\((\w+),(\w+)\)=>\{this\.loadProfile\(\(\)=>([\w$]+)\(\1,\2\)\)\}/
const name = hook.exec(source)[3]
const declaration = `async function ${name}(`
if (!source.includes(declaration)) throw new Error(`no ${declaration} in ${script}`)

// Stands for everything that a browser has and the importers do not use.
const anything = () => new Proxy(function () {}, {
  get: (_, key) => key === Symbol.toPrimitive ? () => 0 : key === 'length' ? 0 : anything(),
  set: () => true,
  apply: anything,
  construct: anything,
  has: () => true,
})
const media = () => ({ matches: false, addListener() {}, addEventListener() {} })
const messages = []
const context = {
  document: anything(), window: { location: { hash: '' }, addEventListener() {}, matchMedia: media },
  navigator: { userAgent: '', platform: '' }, location: { hash: '' },
  localStorage: { getItem: () => null, setItem() {} }, matchMedia: media,
  console: { log: text => messages.push(text), warn() {}, error() {} },
  atob, btoa, TextDecoder, TextEncoder, setTimeout, performance, URL, Blob,
  requestAnimationFrame() {}, Uint8Array, ArrayBuffer,
}
context.self = context.globalThis = context
vm.createContext(context)
try {
  const exposed = `globalThis.importFromBase64=${name};${declaration}`
  vm.runInContext(source.replace(declaration, exposed), context)
} catch (error) {
  if (!context.importFromBase64) throw error
}

const SECONDS = { seconds: 1, nanoseconds: 1e-9, none: 1e-6 }
context.importFromBase64(path.basename(file), fs.readFileSync(file).toString('base64')).then(group => {
  if (!group) throw new Error('speedscope does not know the format: ' + messages.join(', '))
  const lanes = {}
  for (const profile of group.profiles) {
    const unit = SECONDS[profile.getWeightUnit()]
    const frames = { '': profile.getTotalWeight() * unit }
    profile.forEachFrame(frame => { frames[frame.name] = frame.getTotalWeight() * unit })
    lanes[profile.getName()] = frames
  }
  process.stdout.write(JSON.stringify(lanes))
}).catch(error => { console.error(error); process.exit(1) })
