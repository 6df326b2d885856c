#!/usr/bin/env node
// Runs the program of the package for this platform, which npm has installed as an optional dependency.
'use strict';

const { spawn } = require('node:child_process');

const name = `turnwright-${process.platform}-${process.arch}`;
const file = process.platform === 'win32' ? 'turnwright.exe' : 'turnwright';
let program;
try {
  program = require.resolve(`${name}/bin/${file}`);
} catch {
  console.error(
    `turnwright: the package ${name} is not installed. Either there is none for this platform, or ` +
      'npm was told to leave out optional dependencies.',
  );
  process.exit(1);
}

const args = process.argv.slice(2);
if (typeof process.execve === 'function' && process.platform !== 'win32') {
  // The program takes the place of this process. Node warns that the function is experimental.
  process.removeAllListeners('warning');
  process.execve(program, [program, ...args], process.env);
}
const child = spawn(program, args, { stdio: 'inherit' });
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) {
  // On Windows, the console tells the program by itself, and `kill` would end it before it can react.
  process.on(signal, () => process.platform === 'win32' || child.kill(signal));
}
child.on('error', (error) => {
  console.error(`turnwright: ${program} cannot be started: ${error.message}`);
  process.exit(1);
});
child.on('exit', (code, signal) => process.exit(code ?? (signal === 'SIGINT' ? 130 : 143)));
