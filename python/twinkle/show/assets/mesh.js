"use strict";
// The same equations as the core's, on plain numbers: every rank of every tested mesh is compared with it.
const mesh = JSON.parse(document.getElementById("data").textContent);
const places = mesh.ranks && new Map(mesh.ranks.map((rank, place) => [rank, place]));
const axisOf = Object.fromEntries(mesh.names.map((name, place) => [name, place]));

// One index per axis, or null outside the mesh.
function coordinateOf(rank) {
  const coordinate = new Array(mesh.sizes.length).fill(0);
  if (places) {
    if (!places.has(rank)) return null;
    let rest = places.get(rank);
    for (let axis = mesh.sizes.length - 1; axis >= 0; axis--) {
      coordinate[axis] = rest % mesh.sizes[axis];
      rest = Math.floor(rest / mesh.sizes[axis]);
    }
    return coordinate;
  }
  // Along a descending axis the highest index has the lowest rank.
  let rest = rank - mesh.offset;
  const steps = mesh.strides.map((stride, axis) => ({ axis, stride: Math.abs(stride), size: mesh.sizes[axis], down: stride < 0 }));
  for (const step of steps) if (step.down) rest += (step.size - 1) * step.stride;
  if (!Number.isSafeInteger(rest) || rest < 0) return null;
  for (const step of steps.filter((each) => each.size > 1).sort((one, other) => other.stride - one.stride)) {
    const index = Math.floor(rest / step.stride);
    if (index >= step.size) return null;
    rest -= index * step.stride;
    coordinate[step.axis] = step.down ? step.size - 1 - index : index;
  }
  return rest === 0 ? coordinate : null;
}

function rankOf(coordinate) {
  if (!places) return coordinate.reduce((rank, index, axis) => rank + index * mesh.strides[axis], mesh.offset);
  return mesh.ranks[coordinate.reduce((place, index, axis) => place * mesh.sizes[axis] + index, 0)];
}

function dataRankOf(coordinate) {
  const index = (name) => (name in axisOf ? coordinate[axisOf[name]] : 0);
  return Math.floor((index("dp") * mesh.data.fsdp + index("fsdp")) / mesh.data.overlaid);
}

// How a group goes on: its size, and the rank at each index.
function groupOf(name, rank) {
  const coordinate = coordinateOf(rank);
  if (name in axisOf) {
    const at = (index) => rankOf(coordinate.map((own, axis) => (axis === axisOf[name] ? index : own)));
    return { size: mesh.sizes[axisOf[name]], index: coordinate[axisOf[name]], at };
  }
  const { fsdp, overlaid } = mesh.data;
  const first = dataRankOf(coordinate) * overlaid;
  const at = (index) => {
    const data = { dp: Math.floor((first + index) / fsdp), fsdp: (first + index) % fsdp };
    return rankOf(coordinate.map((own, axis) => data[mesh.names[axis]] ?? own));
  };
  const index = Array.from({ length: overlaid }, (_, place) => at(place)).indexOf(rank);
  return { size: overlaid, index, at };
}

// Whether a rank is in the group of another one, given both coordinates.
function together(name, one, other) {
  if (name in axisOf) return one.every((index, axis) => axis === axisOf[name] || index === other[axis]);
  const rest = one.every((index, axis) => ["dp", "fsdp"].includes(mesh.names[axis]) || index === other[axis]);
  return rest && dataRankOf(one) === dataRankOf(other);
}

function rowsOf(dataRank) {
  const size = Math.floor(mesh.batch / mesh.data.count), more = mesh.batch % mesh.data.count;
  const start = dataRank * size + Math.min(dataRank, more);
  return [start, start + size + (dataRank < more ? 1 : 0)];
}

function folded(group) {
  const { size, at } = group;
  if (size === 1) return `${at(0)}`;
  const step = at(1) - at(0);
  let even = true;
  for (let index = 2; even && index < size && (places || index < 4); index++) even = at(index) - at(index - 1) === step;
  if (even && (size > 2 || step === 1)) return `${at(0)}-${at(size - 1)}${step === 1 ? "" : ` step ${step}`}`;
  const shown = Array.from({ length: Math.min(size, 12) }, (_, index) => at(index)).join(", ");
  return size > 12 ? `${shown}, ... (${size} ranks)` : shown;
}

// The page.
const SHAPES = ["M1 1h10v10H1z", "M6 0l6 11H0z", "M6 .5a5.5 5.5 0 1 1 0 11a5.5 5.5 0 1 1 0-11z", "M6 0l6 6l-6 6l-6-6z",
  "M4 0h4v4h4v4H8v4H4V8H0V4h4z", "M0 0l12 0l-6 12z", "M0 3h12v6H0z", "M3 0h6v12H3z", "M0 0h12L0 12z"];
const shapeOf = Object.fromEntries([...mesh.axes].reverse().map((name, place) => [name, SHAPES[place % SHAPES.length]]));
const picture = document.getElementById("picture");
const cells = [...picture.querySelectorAll(".cell")].map((element) => {
  const rank = Number(element.dataset.rank);
  return { element, rank, coordinate: coordinateOf(rank), box: element.querySelector("rect") };
});
const cellOf = new Map(cells.map((cell) => [cell.rank, cell]));
const byId = (id) => document.getElementById(id);
let held = null, focused = cells[0];

function svg(name, attributes) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  return element;
}

function colourBy(name) {
  for (const button of byId("axes").querySelectorAll("button")) {
    const on = button.dataset.axis === name;
    button.setAttribute("aria-checked", on);
    button.tabIndex = on ? 0 : -1;
  }
  let highest = 0;
  for (const cell of cells) {
    const index = name === "data" ? dataRankOf(cell.coordinate) : groupOf(name, cell.rank).index;
    highest = Math.max(highest, index);
    cell.element.dataset.index = index;
    cell.box.setAttribute("fill", mesh.colours[index % mesh.colours.length]);
    const label = cell.element.querySelector(".index");
    if (label) label.textContent = `${name} ${index}`;
  }
  const legend = picture.querySelector(".legend");
  const [title] = legend.querySelectorAll("text");
  title.textContent = name === "data" ? "data rank" : name;
  legend.replaceChildren(title);
  let x = Number(title.getAttribute("x")) + 12 + 7 * title.textContent.length;
  const y = Number(title.getAttribute("y"));
  mesh.colours.slice(0, highest + 1).forEach((colour, place) => {
    const label = highest >= mesh.colours.length + place ? `${place}, ${place + mesh.colours.length} ...` : `${place}`;
    const text = svg("text", { x: x + 19, y, "font-size": 12, class: "soft" });
    text.textContent = label;
    legend.append(svg("rect", { x, y: y - 11, width: 14, height: 14, rx: 3, fill: colour }), text);
    x += 34 + 7 * label.length;
  });
}

function light(rank) {
  const coordinate = rank === null ? null : coordinateOf(rank);
  picture.classList.toggle("choosing", coordinate !== null);
  for (const cell of cells) {
    for (const mark of cell.element.querySelectorAll(".mark")) mark.remove();
    delete cell.element.dataset.lit;
    delete cell.element.dataset.chosen;
    if (coordinate === null) continue;
    const lit = mesh.axes.filter((name) => together(name, coordinate, cell.coordinate));
    if (!lit.length) continue;
    cell.element.dataset.lit = lit.join(" ");
    if (cell.rank === rank) {
      cell.element.dataset.chosen = "";
      continue;
    }
    // A shape for each group, so that colour is not all that tells them apart.
    const scale = cell.box.height.baseVal.value > 25 ? 0.75 : 0.4;
    lit.forEach((name, place) => cell.element.append(svg("path", {
      class: "mark", d: shapeOf[name],
      transform: `translate(${cell.box.x.baseVal.value + 2 + place * 13 * scale} ${cell.box.y.baseVal.value + 2}) scale(${scale})`,
    })));
  }
}

function tell(rank) {
  const coordinate = rank === null ? null : coordinateOf(rank);
  byId("groups").hidden = coordinate === null;
  byId("rows").textContent = "";
  if (rank === null) {
    byId("which").textContent = "No rank chosen";
    byId("place").textContent = "Point at a rank, tap it, or search for it.";
    return;
  }
  byId("which").textContent = `Rank ${rank}`;
  if (coordinate === null) {
    byId("place").textContent = "This rank is not in the mesh.";
    return;
  }
  let place = coordinate.map((index, axis) => `${mesh.names[axis]}=${index}`).join(" ");
  if (mesh.nproc) place += `; node ${Math.floor(rank / mesh.nproc)}, local rank ${rank % mesh.nproc}`;
  if (!cellOf.has(rank)) place += "; folded away in the picture";
  byId("place").textContent = place;
  byId("groups").tBodies[0].replaceChildren(...mesh.axes.map((name) => {
    const group = groupOf(name, rank);
    const row = document.createElement("tr");
    row.dataset.axis = name;
    const mark = svg("svg", { viewBox: "0 0 12 12", "aria-hidden": "true" });
    mark.append(svg("path", { d: shapeOf[name] }));
    [mark, name, `${group.index} of ${group.size}`, folded(group)].forEach((content, column) => {
      const cell = document.createElement("td");
      if (column < 3) cell.className = "number";
      cell.append(content);
      row.append(cell);
    });
    return row;
  }));
  if (!mesh.data) return;
  const dataRank = dataRankOf(coordinate);
  let rows = `Data rank ${dataRank} of ${mesh.data.count}`;
  if (mesh.batch !== null) {
    const [start, stop] = rowsOf(dataRank);
    rows += start === stop ? `; no rows of ${mesh.batch}`
      : `; ${stop - start === 1 ? `row ${start}` : `rows ${start}-${stop - 1}`} of ${mesh.batch}`;
  }
  byId("rows").textContent = rows;
}

function show(rank) {
  light(rank);
  tell(rank);
}

function hold(rank) {
  held = rank;
  show(rank);
}

function focus(cell) {
  focused.element.tabIndex = -1;
  focused = cell;
  cell.element.tabIndex = 0;
  cell.element.focus();
}

// The nearest cell in a direction: mostly along it, a little aside.
function beyond(cell, right, down) {
  const middle = (each) => [each.box.x.baseVal.value + each.box.width.baseVal.value / 2, each.box.y.baseVal.value + each.box.height.baseVal.value / 2];
  const [x, y] = middle(cell);
  let nearest = cell, least = Infinity;
  for (const each of cells) {
    const [toX, toY] = middle(each);
    const along = (toX - x) * right + (toY - y) * down, aside = Math.abs((toX - x) * down) + Math.abs((toY - y) * right);
    if (along > 1 && along + 3 * aside < least) [nearest, least] = [each, along + 3 * aside];
  }
  return nearest;
}

const MOVES = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1] };
for (const name of [...mesh.axes, ...(mesh.data ? ["data"] : [])]) {
  const button = document.createElement("button");
  button.type = "button";
  button.setAttribute("role", "radio");
  button.dataset.axis = name;
  button.textContent = name;
  button.addEventListener("click", () => colourBy(name));
  byId("axes").append(button);
}
byId("axes").addEventListener("keydown", (event) => {
  const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
  if (!step) return;
  const buttons = [...byId("axes").querySelectorAll("button")];
  const next = buttons.at((buttons.indexOf(document.activeElement) + step) % buttons.length);
  next.click();
  next.focus();
  event.preventDefault();
});
for (const cell of cells) {
  cell.element.querySelector("title").remove();
  cell.element.setAttribute("role", "button");
  cell.element.setAttribute("aria-label", `rank ${cell.rank}`);
  cell.element.tabIndex = cell === focused ? 0 : -1;
  cell.element.addEventListener("pointerenter", () => held === null && show(cell.rank));
  cell.element.addEventListener("focus", () => show(cell.rank));
  cell.element.addEventListener("click", () => {
    focus(cell);
    hold(held === cell.rank ? null : cell.rank);
  });
}
picture.querySelector("svg").removeAttribute("role");
picture.addEventListener("pointerleave", () => show(held));
picture.addEventListener("focusout", () => show(held));
picture.addEventListener("keydown", (event) => {
  if (event.key in MOVES) focus(beyond(focused, ...MOVES[event.key]));
  else if (event.key === "Home") focus(cells[0]);
  else if (event.key === "End") focus(cells.at(-1));
  else if (event.key === "Enter" || event.key === " ") hold(focused.rank);
  else return;
  event.preventDefault();
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") hold(null);
  if (event.key === "/" && document.activeElement !== byId("rank")) {
    byId("rank").focus();
    event.preventDefault();
  }
});
byId("find").addEventListener("submit", (event) => {
  event.preventDefault();
  const text = byId("rank").value.trim();
  if (!/^\d{1,16}$/.test(text)) {
    hold(null);
    byId("which").textContent = text ? `${text} is no rank` : "No rank chosen";
    return;
  }
  const cell = cellOf.get(Number(text));
  if (cell) cell.element.scrollIntoView({ block: "nearest", inline: "nearest" });
  hold(Number(text));
});
byId("theme").addEventListener("click", () => {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  byId("theme").textContent = dark ? "Dark" : "Light";
});
if (matchMedia("(prefers-color-scheme: dark)").matches) byId("theme").textContent = "Light";
colourBy(mesh.axis);
