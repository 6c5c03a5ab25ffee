// The files of the site: named by their content, compressed, kept once they are loaded.

export class Missing extends Error {}

const loaded = new Map();

async function fetched(url) {
  let response;
  try {
    response = await fetch(url);
  } catch {
    throw new Missing("The site cannot be reached.");
  }
  if (!response.ok) throw new Missing(`A file of this site is missing (${url.pathname.split("/").pop()}). It may have been published only in part.`);
  return response;
}

// A server may have decompressed the file on its way: the first two bytes say whether it did.
async function unpacked(response) {
  const data = new Uint8Array(await response.arrayBuffer());
  if (data[0] !== 0x1f || data[1] !== 0x8b) return data;
  const stream = new Blob([data]).stream().pipeThrough(new DecompressionStream("gzip"));
  try {
    return new Uint8Array(await new Response(stream).arrayBuffer());
  } catch {
    throw new Missing(`A file of this site is damaged (${response.url.split("/").pop()}).`);
  }
}

// The bytes of a file by its name. A file that failed is tried again when it is wanted again.
export function bytes(name) {
  if (!loaded.has(name)) {
    const found = fetched(new URL(`files/${name}.bin`, document.baseURI)).then(unpacked);
    found.catch(() => loaded.delete(name));
    loaded.set(name, found);
  }
  return loaded.get(name);
}

export const decoder = new TextDecoder();
export const text = async (name) => decoder.decode(await bytes(name));
export async function json(name) {
  try {
    return JSON.parse(await text(name));
  } catch (error) {
    throw error instanceof SyntaxError ? new Missing(`A file of this site is damaged (${name}.bin).`) : error;
  }
}

// A file that this browser made itself.
export const provide = (name, data) => loaded.set(name, Promise.resolve(data));

// The module in a file.
const modules = new Map();
export function module(name) {
  if (!modules.has(name)) {
    const found = text(name).then((code) => import(URL.createObjectURL(new Blob([code], { type: "text/javascript" }))));
    found.catch(() => modules.delete(name));
    modules.set(name, found);
  }
  return modules.get(name);
}
