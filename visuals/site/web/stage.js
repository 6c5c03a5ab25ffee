// The stage of a page: the app's player, given the message that the app's server would send.

import { bytes, decoder } from "./load.js";

const encoder = new TextEncoder();

// The parts of a scene's file: the JSON of its tensors and steps, and the block of numbers.
export function sceneOf(file) {
  const length = new DataView(file.buffer, file.byteOffset).getUint32(0, true);
  return { meta: decoder.decode(file.subarray(4, 4 + length)), block: file.subarray(4 + length) };
}

// The message of visuals.stage.message: the lengths of two JSON texts, the texts, the block.
export function messageOf(head, strip, { meta, block }) {
  const first = encoder.encode(`{"meta":${meta},${JSON.stringify(head).slice(1)}`), second = encoder.encode(JSON.stringify(strip));
  const message = new Uint8Array(8 + first.length + second.length + block.length), view = new DataView(message.buffer);
  view.setUint32(0, first.length, true);
  view.setUint32(4, second.length, true);
  message.set(first, 8);
  message.set(second, 8 + first.length);
  message.set(block, 8 + first.length + second.length);
  return message;
}

// Without a hall nothing is measured: the strip has no button.
export function withoutRun(strip) {
  return strip?.run ? { ...strip, run: { ...strip.run, can: false, running: false, error: "", text: "" } } : strip;
}

export async function stageData(element, site) {
  const scene = sceneOf(await bytes(element.scene));
  return messageOf({ ...site.common, ...element.head }, site.stripOf(element), scene);
}
