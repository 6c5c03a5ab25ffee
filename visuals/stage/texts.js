// The player's texts in the reader's language. English is the source: a text without a translation stays as it is.
// visuals/stage/texts.py extracts every text that is an argument of tr, trn, trParts, trnParts or mark.

const ENGLISH = { language: "en", texts: {}, plural: "" };
const FIELD = /\{([A-Za-z_]\w*)\}/g;

let catalog = ENGLISH;
let separators = null; // "," and "." of an English number -> those of the language; null: English

// Sets the catalog of all texts: `browser_catalog` of kernels/i18n.py; {} is English.
export function useTexts(sent) {
  catalog = { ...ENGLISH, ...sent };
  separators = null;
  if (catalog.language === "en") return;
  const parts = new Intl.NumberFormat(catalog.language).formatToParts(12345.6);
  const of = (type) => parts.find((part) => part.type === type)?.value || "";
  separators = { ",": of("group"), ".": of("decimal") };
}

export const language = () => catalog.language;

// An English number, "1,234.5", with the separators of the reader's language.
export const decimal = (text) => (separators ? text.replace(/[,.]/g, (sign) => separators[sign]) : text);

export const count = (n) => decimal(n.toLocaleString("en"));

// A constant that is translated where it is shown.
export const mark = (message) => message;

const translated = (message) => catalog.texts[message] ?? message;

// The form for the number n. Rules of plurals depend on n up to 99, beyond on n mod 100; the catalog has 0 to 199.
function pluralOf(one, many, n) {
  const forms = catalog.texts[one];
  if (!forms) return n === 1 ? one : many;
  return forms[catalog.plural[n < 200 ? n : 100 + (n % 100)]];
}

const filled = (text, fields) => (fields ? text.replace(FIELD, (field, name) => fields[name] ?? field) : text);

// The message with its {fields} filled; {n} of trn is the number.
export const tr = (message, fields) => filled(translated(message), fields);
export const trn = (one, many, n, fields) => filled(pluralOf(one, many, n), { n: count(n), ...fields });

// The same as parts {text, role}. A field is a text, a part or a list of parts.
export const trParts = (message, fields) => partsWith(translated(message), fields);
export const trnParts = (one, many, n, fields) => partsWith(pluralOf(one, many, n), { n: count(n), ...fields });

const partsWith = (text, fields) => text.split(FIELD).flatMap((piece, n) => {
  const part = n % 2 ? fields[piece] ?? piece : piece;
  return typeof part === "object" ? part : part === "" ? [] : { text: String(part), role: "" };
});

// "column 4 of 36": a step of a scene.
export const stepText = ({ stepName, steps }, step) => tr("{name} {step} of {steps}", { name: stepName, step: count(step + 1), steps: count(steps) });

// The texts of a document, as html_messages in texts.py finds them: [message, function that shows a text in its place].
export function textsIn(root) {
  const found = [], walker = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
  const add = (text, show) => { if (/[A-Za-z]{2}/.test(text)) found.push([text.trim(), show]); };
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const { data } = node, show = (text) => { node.data = data.replace(data.trim(), () => text); };
    add(data, show);
  }
  for (const node of [root, ...root.querySelectorAll("[aria-label], [title]")])
    for (const name of ["aria-label", "title"]) add(node.getAttribute(name) || "", (text) => node.setAttribute(name, text));
  return found;
}
