// Measures each page of the site in a frame as wide as a phone, light and dark; run by tools/docs.py, in a headless browser.
// It writes a line for each fault into the document: page, theme, fault, place.

function luminance(colour) {
  const [red, green, blue] = colour.map((part) => {
    const value = part / 255;
    return value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}

// Return the red, green, blue and opacity of a computed colour, or null if it is no plain colour.
function parts(text) {
  const found = text.match(/^rgba?\(([^)]+)\)$/);
  if (!found) return null;
  const numbers = found[1].split(/[\s,/]+/).map(Number);
  return { colour: numbers.slice(0, 3), opacity: numbers[3] ?? 1 };
}

function* ancestors(element) {
  for (let next = element; next; next = next.parentElement) yield next;
}

function paper(element, style) {
  for (const each of ancestors(element)) {
    const found = parts(style(each).backgroundColor);
    if (found && found.opacity > 0.95) return found.colour;
  }
  return [255, 255, 255];
}

// Web Content Accessibility Guidelines 2, success criterion 1.4.3 (level AA).
function* faintText(page, style) {
  const walker = page.createTreeWalker(page.querySelector(".main") ?? page.body, NodeFilter.SHOW_TEXT);
  const seen = new Set();
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    const text = walker.currentNode.textContent.trim();
    if (!text || element.closest("style, script") || !element.getClientRects().length) continue;
    const own = style(element);
    const ink = parts(element.closest("svg") ? own.fill : own.color);
    if (!ink) continue;
    const [dark, light] = [luminance(ink.colour), luminance(paper(element, style))].sort((a, b) => a - b);
    const ratio = (light + 0.05) / (dark + 0.05);
    const size = parseFloat(own.fontSize);
    const large = size >= 24 || (size >= 18.66 && Number(own.fontWeight) >= 700);
    const kind = `${own.color} ${own.fill} ${ratio}`;
    if (ratio < (large ? 3 : 4.5) && !seen.has(kind)) {
      seen.add(kind);
      yield `contrast ${ratio.toFixed(1)}: ${text.slice(0, 40)}`;
    }
  }
}

function* cutOff(page, style, width) {
  const beyond = page.documentElement.scrollWidth - width;
  if (beyond > 0) yield `the page is ${beyond} px wider than the screen`;
  for (const element of page.querySelectorAll("article *")) {
    const right = element.getBoundingClientRect().right;
    if (right <= width + 1) continue;
    const scrolls = [...ancestors(element)].some((each) => ["auto", "scroll"].includes(style(each).overflowX));
    if (!scrolls) yield `${Math.round(right - width)} px cut off: ${element.textContent.trim().slice(0, 40)}`;
  }
}

// Web Content Accessibility Guidelines 2, success criterion 2.1.1: what scrolls can be scrolled by keys.
function* unreachable(page, style) {
  for (const element of page.querySelectorAll("article *")) {
    const scrolls = element.scrollWidth > element.clientWidth && ["auto", "scroll"].includes(style(element).overflowX);
    if (scrolls && element.tabIndex < 0 && !element.querySelector("a[href], button, [tabindex='0']")) {
      yield `cannot be scrolled by keys: ${element.textContent.trim().replace(/\s+/g, " ").slice(0, 40)}`;
    }
  }
}

async function load(frame, address) {
  const loaded = new Promise((resolve) => frame.addEventListener("load", resolve, { once: true }));
  frame.src = address;
  await loaded;
}

async function measure(site, pages, width) {
  const frame = document.querySelector("iframe");
  const lines = [];
  for (const name of pages) {
    await load(frame, `${site}/${name}`);
    const page = frame.contentDocument;
    for (const panel of page.querySelectorAll("[role=tabpanel]")) panel.hidden = false;
    const style = (element) => frame.contentWindow.getComputedStyle(element);
    for (const theme of ["light", "dark"]) {
      page.body.dataset.theme = theme;
      for (const fault of faintText(page, style)) lines.push(`${name}, ${theme}: ${fault}`);
    }
    for (const faults of [cutOff(page, style, width), unreachable(page, style)]) {
      const [first, ...others] = faults;
      if (first) lines.push(`${name}: ${first}${others.length ? `, and ${others.length} more` : ""}`);
    }
  }
  document.querySelector("pre").textContent = [`${pages.length} pages`, ...lines].join("\n");
}
