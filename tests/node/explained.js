// What the stage says about cells. Reads {scene: message as hex, cells: [[step, name, index]]} from a file, prints the texts.
import { readFileSync } from "node:fs";

import { decodeScene, unpack } from "../../visuals/stage/decode.js";
import { explain } from "../../visuals/stage/explain.js";

const { scene: hex, cells } = JSON.parse(readFileSync(process.argv[2], "utf8"));
const { meta, block } = unpack(Uint8Array.from(Buffer.from(hex, "hex"))), scene = decodeScene(meta, block);
console.log(JSON.stringify(cells.map(([step, name, index]) => explain(scene, step, name, index).parts.map((p) => p.text).join(""))));
