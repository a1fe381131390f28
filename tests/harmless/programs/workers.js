// node: worker threads, children, signals, timers, and code that is compiled while it runs.
const { Worker, isMainThread, parentPort } = require("worker_threads");
const { spawnSync } = require("child_process");

function work(n) {
  let sum = 0;
  for (let i = 0; i < n; i++) sum += i % 7;
  return sum;
}

if (!isMainThread) {
  parentPort.postMessage(work(30000000));
} else {
  let left = 4;
  for (let i = 0; i < 4; i++) {
    new Worker(__filename).on("message", (sum) => {
      console.log(`worker ${i}: ${sum}`);
      if (--left === 0) end();
    });
  }
  function end() {
    const deep = (n) => deep(n + 1) + 1;
    try {
      deep(0);
    } catch (error) {
      console.log(`too deep: ${error.name}`);
    }
    console.log(`child: ${spawnSync("sh", ["-c", "exit 5"]).status}`);
    process.on("SIGUSR2", () => {
      console.log("signal: SIGUSR2");
      process.exit(6);
    });
    process.kill(process.pid, "SIGUSR2");
    setTimeout(() => {}, 10000);
  }
}
