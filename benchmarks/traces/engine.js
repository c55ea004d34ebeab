// Perfetto's trace processor as its page has it (WebAssembly), in Node: requests from standard input, each
// with its size before it (4 bytes, little-endian), replies to standard output in the same way.
//
//     node engine.js FOLDER        FOLDER has engine_bundle.js and trace_processor.wasm
//
// The bundle is a worker's script: it is given what a worker has of the browser, and its port.
"use strict";
const fs = require("fs");
const path = require("path");
const vm = require("vm");

const folder = process.argv[2];
process.on("uncaughtException", (error) => {
  console.error(String(error)); // and not the line of the bundle, which is all of it
  process.exit(1);
});

class FileRequest {
  open(_, url) { this.url = url; }
  send() {
    const data = fs.readFileSync(path.join(folder, path.basename(this.url)));
    this.response = data.buffer.slice(data.byteOffset, data.byteOffset + data.byteLength);
    this.status = 200;
  }
}

function reply(data) {
  const size = Buffer.alloc(4);
  size.writeUInt32LE(data.length);
  fs.writeSync(1, size);
  for (let at = 0; at < data.length; ) at += fs.writeSync(1, data, at);
}

const port = { postMessage: reply };
const worker = {
  console: { log: console.error, warn: console.error, error: console.error },
  XMLHttpRequest: FileRequest, WorkerGlobalScope: Object, importScripts() {}, location: { href: "engine_bundle.js" },
  TypeError, WebAssembly, TextDecoder, TextEncoder, Uint8Array, ArrayBuffer, performance, crypto, setTimeout, URL,
};
worker.self = worker.globalThis = worker;
vm.createContext(worker);
vm.runInContext(fs.readFileSync(path.join(folder, "engine_bundle.js"), "utf8"), worker);
setTimeout(() => {
  worker.onmessage({ data: port });
  const input = fs.readFileSync(0);
  for (let at = 0; at < input.length; ) {
    const size = input.readUInt32LE(at);
    port.onmessage({ data: new Uint8Array(input.subarray(at + 4, at + 4 + size)) });
    at += 4 + size;
  }
}, 0);
