// Where the stage draws each tensor. Reads {scenes: [message as hex], sizes: [[width, height]]} from a file, prints for
// each scene and size {name: [x, y, cell, rows, cols]}.
import { readFileSync } from "node:fs";

import { decodeScene, unpack } from "../../visuals/stage/decode.js";
import { layOut } from "../../visuals/stage/layout.js";

const measure = (text, bold) => text.length * (bold ? 8.3 : 7);
const { scenes, sizes } = JSON.parse(readFileSync(process.argv[2], "utf8"));
console.log(JSON.stringify(scenes.map((hex) => {
  const { meta, block } = unpack(Uint8Array.from(Buffer.from(hex, "hex"))), scene = decodeScene(meta, block);
  return sizes.map(([width, height]) => Object.fromEntries(Object.values(layOut(scene, width, height, measure).blocks).map(
    ({ t, x, y, cell, way }) => [t.name, [x, y, cell, way.tileRows, way.tileCols]])));
})));
