"use strict";
const { moves, batch } = JSON.parse(document.getElementById("data").textContent);
const byId = (id) => document.getElementById(id);
const picture = byId("picture");
const bands = [...picture.querySelectorAll(".band")];
const shards = [...picture.querySelectorAll(".shard")];
let held = [];

// Lights some moves and the shards at their ends; none lights everything.
function show(numbers) {
  picture.classList.toggle("choosing", numbers.length > 0);
  bands.forEach((band, number) => band.toggleAttribute("data-lit", numbers.includes(number)));
  for (const shard of shards) {
    const { side, shard: own } = shard.dataset;
    shard.toggleAttribute("data-lit", numbers.some((number) => moves[number][side] === Number(own)));
  }
  if (!numbers.length) {
    byId("which").textContent = "No rows chosen";
    byId("place").textContent = "Point at a band or a shard, tap it, or search for a row.";
    return;
  }
  const [first] = numbers;
  byId("which").textContent = numbers.length === 1 ? moves[first].what : `${numbers.length} moves`;
  byId("place").replaceChildren(...numbers.flatMap((number) => {
    const { what, source, target, from, to } = moves[number];
    const line = document.createElement("span");
    line.textContent = `${numbers.length > 1 ? `${what}: ` : ""}shard ${source} (${from}) to shard ${target} (${to})`;
    return [line, document.createElement("br")];
  }));
}

function hold(numbers) {
  held = numbers;
  show(numbers);
}

bands.forEach((band, number) => {
  band.querySelector("title").remove();
  band.setAttribute("role", "button");
  band.setAttribute("aria-label", `${moves[number].what}, shard ${moves[number].source} to shard ${moves[number].target}`);
  band.tabIndex = number === 0 ? 0 : -1;
  band.addEventListener("pointerenter", () => held.length || show([number]));
  band.addEventListener("focus", () => show([number]));
  band.addEventListener("click", () => hold(held.includes(number) ? [] : [number]));
});
for (const shard of shards) {
  const own = () => moves.flatMap((move, number) => (move[shard.dataset.side] === Number(shard.dataset.shard) ? [number] : []));
  shard.addEventListener("pointerenter", () => held.length || show(own()));
  shard.addEventListener("click", () => hold(held.length ? [] : own()));
}
picture.querySelector("svg").removeAttribute("role");
picture.addEventListener("pointerleave", () => show(held));
picture.addEventListener("focusout", () => show(held));
picture.addEventListener("keydown", (event) => {
  const step = { ArrowDown: 1, ArrowRight: 1, ArrowUp: -1, ArrowLeft: -1 }[event.key];
  const number = bands.indexOf(document.activeElement);
  if (number < 0) return;
  if (event.key === "Enter" || event.key === " ") hold([number]);
  else if (step && bands[number + step]) {
    bands[number].tabIndex = -1;
    bands[number + step].tabIndex = 0;
    bands[number + step].focus();
  } else return;
  event.preventDefault();
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") hold([]);
  if (event.key === "/" && document.activeElement !== byId("row")) {
    byId("row").focus();
    event.preventDefault();
  }
});
byId("find").addEventListener("submit", (event) => {
  event.preventDefault();
  const text = byId("row").value.trim(), row = Number(text);
  const number = moves.findIndex(({ rows }) => rows[0] <= row && row <= rows[1]);
  hold(/^\d{1,16}$/.test(text) && number >= 0 ? [number] : []);
  if (held.length) bands[number].scrollIntoView({ block: "nearest" });
  else if (text) byId("which").textContent = /^\d{1,16}$/.test(text) && row < batch ? `Row ${text} is folded away` : `${text} is no row of ${batch}`;
});
byId("theme").addEventListener("click", () => {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  byId("theme").textContent = dark ? "Dark" : "Light";
});
if (matchMedia("(prefers-color-scheme: dark)").matches) byId("theme").textContent = "Light";
