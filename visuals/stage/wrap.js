// Lines of a text in a picture.

// Parts {text, role} as lines of runs {text, role, x}. Lines break only between words; a word may span several parts.
export function wrap(parts, maxWidth, measure) {
  const words = [[]];
  for (const { text, role } of parts)
    text.split(/(\s+)/).forEach((piece, k) => {
      if (k % 2) words.push([]);
      else if (piece) words.at(-1).push({ text: piece, role, width: measure(piece, role) });
    });
  const space = measure(" ", ""), lines = [[]];
  let x = 0;
  for (const word of words.filter((word) => word.length)) {
    const width = word.reduce((sum, piece) => sum + piece.width, 0);
    if (x && x + space + width > maxWidth) {
      lines.push([]);
      x = 0;
    }
    let gap = x ? " " : "";
    for (const { text, role, width } of word) {
      const last = lines.at(-1).at(-1);
      if (gap) x += space;
      if (last?.role === role) last.text += gap + text;
      else lines.at(-1).push({ text, role, x });
      x += width;
      gap = "";
    }
  }
  return lines;
}
