"use strict";
(() => {
  const LARGE = 192; // px of a heatmap that is not laid over a photo
  const NEAR = "800px"; // above and below the window, where cards have their pictures

  const data = JSON.parse(document.getElementById("data").textContent);
  const colours = Uint8Array.from(data.colours.match(/../g), (pair) => parseInt(pair, 16));
  const control = (name) => document.getElementById(name)?.value ?? "";

  function element(tag, properties = {}, ...children) {
    const made = Object.assign(document.createElement(tag), properties);
    made.append(...children);
    return made;
  }

  // Tables

  function sortTable(heading) {
    const ascending = heading.ariaSort !== "ascending";
    const at = heading.cellIndex;
    const body = heading.closest("table").tBodies[0];
    const value = (row) => row.cells[at].dataset.value ?? row.cells[at].textContent;
    const compare = (a, b) => {
      const [x, y] = [value(a), value(b)];
      const [p, q] = [Number(x), Number(y)];
      if (Number.isNaN(p) !== Number.isNaN(q)) return Number.isNaN(p) ? 1 : -1; // no value: last
      const order = Number.isNaN(p) ? x.localeCompare(y) : p - q;
      return ascending ? order : -order;
    };
    body.append(...[...body.rows].sort(compare));
    for (const other of heading.parentElement.cells) other.ariaSort = "none";
    heading.ariaSort = ascending ? "ascending" : "descending";
  }
  for (const button of document.querySelectorAll(".sortable th button"))
    button.addEventListener("click", () => sortTable(button.closest("th")));

  // Heatmaps

  // For each of `large` places between aligned ends: its neighbours of `small`, and how far between.
  function between(small, large) {
    return Array.from({ length: large }, (_, at) => {
      const place = (at * (small - 1)) / Math.max(large - 1, 1);
      const before = Math.floor(place);
      return [before, Math.min(before + 1, small - 1), place - before];
    });
  }

  // By straight lines, as the network saw the mask: columns first, then rows.
  function enlarge(bytes, height, width, tall, wide) {
    const columns = between(width, wide);
    const rows = new Float32Array(height * wide);
    for (let y = 0, at = 0; y < height; y++)
      for (const [left, right, share] of columns) {
        const here = bytes[y * width + left];
        rows[at++] = (here + (bytes[y * width + right] - here) * share) / 255;
      }
    const large = new Float32Array(tall * wide);
    let at = 0;
    for (const [above, below, share] of between(height, tall))
      for (let x = 0; x < wide; x++) {
        const here = rows[above * wide + x];
        large[at++] = here + (rows[below * wide + x] - here) * share;
      }
    return large;
  }

  // The hotter, the less of the photo in dim grey shows through: as igos.plot.overlay.
  function draw(canvas, [height, width, text], photo) {
    const scale = LARGE / Math.max(height, width);
    canvas.width = photo ? photo.naturalWidth : Math.max(1, Math.round(width * scale));
    canvas.height = photo ? photo.naturalHeight : Math.max(1, Math.round(height * scale));
    const context = canvas.getContext("2d", { willReadFrequently: true });
    if (photo) context.drawImage(photo, 0, 0);
    const image = context.getImageData(0, 0, canvas.width, canvas.height);
    const bytes = Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
    const heat = enlarge(bytes, height, width, canvas.height, canvas.width);
    const pixels = image.data;
    for (let i = 0, at = 0; i < heat.length; i++, at += 4) {
      const colour = 3 * Math.round(255 * heat[i]);
      const opacity = photo ? 0.9 * Math.sqrt(heat[i]) : 1;
      const grey = (0.65 / 3) * (pixels[at] + pixels[at + 1] + pixels[at + 2]) * (1 - opacity);
      for (let c = 0; c < 3; c++) pixels[at + c] = opacity * colours[colour + c] + grey;
      pixels[at + 3] = 255;
    }
    context.putImageData(image, 0, 0);
  }

  // Cards

  const first = (name) => name.split(",")[0];

  function tile(caption, figures, picture) {
    const list = element("dl");
    for (const [name, value] of figures)
      list.append(element("dt", { textContent: name }), element("dd", { textContent: value.toFixed(3) }));
    return element("figure", { className: "tile" }, picture, element("figcaption", {}, ...caption, list));
  }

  function makeCard(card, at) {
    const about = element("p", {}, element("b", { textContent: first(card.target) }));
    about.append(` ${card.probability.toFixed(3)}`);
    if (card.predicted !== card.target)
      about.append(`, predicted ${first(card.predicted)} ${card.predicted_probability.toFixed(3)}`);
    const tiles = element("div", { className: "tiles" });
    tiles.append(tile(["photo"], [], element("div", { className: "picture photo" })));
    for (const [number, deletion, insertion] of card.results) {
      const { method, size } = data.configurations[number];
      const made = tile(
        [element("b", { textContent: method }), ` ${size}`],
        [["deletion", deletion], ["insertion", insertion]],
        element("div", { className: "picture" }),
      );
      made.dataset.configuration = number;
      tiles.append(made);
    }
    const article = element("article", { className: "card" }, element("h3", { textContent: card.name }), about, tiles);
    if (card.warnings.length) {
      const list = element("ul", {}, ...card.warnings.map((textContent) => element("li", { textContent })));
      const count = `${card.warnings.length} ${card.warnings.length === 1 ? "warning" : "warnings"}`;
      article.append(element("details", {}, element("summary", { textContent: count }), list));
    }
    article.dataset.at = at;
    return article;
  }

  const read = (at) => JSON.parse(document.getElementById(`pictures-${at}`).textContent);

  // Pictures are made for cards near the window and dropped elsewhere: hundreds would not fit.
  async function fill(article) {
    const card = data.cards[article.dataset.at];
    const pictures = read(article.dataset.at);
    // What several questions see alike is in the page once; the other cards have its card's number.
    const source = typeof pictures.photo === "number" ? read(pictures.photo).photo : pictures.photo;
    const box = article.querySelector(".photo");
    let photo = null;
    if (source) {
      const image = element("img", { src: source, alt: `${card.name}, ${first(card.target)}` });
      photo = await image.decode().then(() => image, () => null); // heatmaps stand alone, too
      if (!near.has(article)) return;
    }
    box.replaceChildren(photo ?? "photo not found");
    const under = pictures.fits && control("layer") === "over" ? photo : null;
    for (const made of article.querySelectorAll("[data-configuration]")) {
      if (made.hidden) continue;
      const heat = pictures.heats[made.dataset.configuration];
      const place = made.querySelector(".picture");
      place.hidden = !heat; // of a store without heatmaps
      if (!heat) continue;
      const { method, size } = data.configurations[made.dataset.configuration];
      const canvas = element("canvas", { role: "img", ariaLabel: `Heatmap of ${method} at ${size}` });
      draw(canvas, heat, under);
      place.replaceChildren(canvas);
    }
  }

  const near = new Set();
  const waiting = new Set();
  function ask(article) {
    if (!waiting.size) requestAnimationFrame(fillNext);
    waiting.add(article);
  }
  function fillNext() {
    const [article] = waiting; // one a frame, so that scrolling stays smooth
    waiting.delete(article);
    if (near.has(article)) fill(article);
    if (waiting.size) requestAnimationFrame(fillNext);
  }
  const observer = new IntersectionObserver(
    (entries) => {
      for (const { target, isIntersecting } of entries) {
        if (isIntersecting) {
          near.add(target);
          ask(target);
        } else if (near.delete(target)) {
          for (const box of target.querySelectorAll(".picture")) box.replaceChildren();
        }
      }
    },
    { rootMargin: `${NEAR} 0px` },
  );

  // Order and filters

  const gallery = document.getElementById("gallery");
  const articles = data.cards.map(makeCard);
  for (const article of articles) observer.observe(article);

  const gain = ([, deletion, insertion]) => insertion - deletion;
  const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;

  // How far methods are apart; areas at different resolutions are not compared.
  function dispute(card, size) {
    const bySize = {};
    for (const result of card.results) {
      const own = data.configurations[result[0]].size;
      if (!size || own === size) (bySize[own] ??= []).push(gain(result));
    }
    return Math.max(...Object.values(bySize).map((all) => Math.max(...all) - Math.min(...all)));
  }

  function choose() {
    const [question, method, size] = ["question", "method", "size"].map(control);
    const fits = (one) =>
      (!question || String(one.question) === question) &&
      (!method || one.method === method) &&
      (!size || one.size === size);
    return new Set(Object.keys(data.configurations).filter((number) => fits(data.configurations[number])));
  }

  function matches(card) {
    const text = control("text").trim().toLowerCase();
    const warnings = control("warnings");
    if (![card.name, card.target, card.predicted].some((one) => one.toLowerCase().includes(text))) return false;
    if (warnings.startsWith("=")) return card.kinds.includes(warnings.slice(1));
    return !warnings || (card.kinds.length > 0) === (warnings === "with");
  }

  const ORDERS = {
    best: (card, own) => -mean(own.map(gain)),
    worst: (card, own) => mean(own.map(gain)),
    disputed: (card) => -dispute(card, control("size")),
    probable: (card) => -card.probability,
    name: () => 0,
  };

  function update() {
    const chosen = choose();
    const order = ORDERS[control("order")];
    const found = [];
    for (const article of articles) {
      const card = data.cards[article.dataset.at];
      const own = card.results.filter(([number]) => chosen.has(String(number)));
      if (!own.length || !matches(card)) continue;
      found.push({ article, name: card.name, key: order(card, own) });
      for (const made of article.querySelectorAll("[data-configuration]"))
        made.hidden = !chosen.has(made.dataset.configuration);
    }
    found.sort((a, b) => a.key - b.key || a.name.localeCompare(b.name));
    gallery.style.setProperty("--tiles", chosen.size + 1);
    gallery.style.setProperty("--tile", control("tile"));
    gallery.replaceChildren(...found.map(({ article }) => article));
    const question = control("question");
    const asked = data.cards.filter((card) => !question || String(card.question) === question);
    document.getElementById("shown").textContent = `${found.length} of ${asked.length} photos`;
    for (const { article } of found) if (near.has(article)) ask(article);
  }

  const controls = document.getElementById("controls");
  controls.addEventListener("input", update);
  controls.addEventListener("submit", (event) => event.preventDefault());
  controls.reset(); // a browser may have kept what was chosen before
  update();
})();
