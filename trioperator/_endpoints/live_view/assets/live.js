"use strict";
// Keeps the live part of a page up to date: the server sends its newest state over server-sent events.
// Nothing is replaced that has not changed, so that focus, open details and the reader's place stay where they are.
const live = document.getElementById("live");
const connection = document.getElementById("connection");
const pause = document.getElementById("pause");
const RETRY = 5000;
let source = null, waiting = null, shownAt = performance.now(), isPaused = false, isPressed = false;

const say = (text, isStale) => {
  if (connection.textContent !== text) connection.textContent = text;  // it is read aloud
  document.body.classList.toggle("stale", isStale);
};

const keyOf = node => node.id || "";

function morph(from, to) {
  if (from.nodeName !== to.nodeName || keyOf(from) !== keyOf(to)) { from.replaceWith(to); return; }
  if (from.nodeType === Node.TEXT_NODE) { if (from.data !== to.data) from.data = to.data; return; }
  if (from.nodeType !== Node.ELEMENT_NODE) return;
  for (const { name } of [...from.attributes]) if (!to.hasAttribute(name) && name !== "open") from.removeAttribute(name);
  for (const { name, value } of to.attributes)
    if (name !== "open" && from.getAttribute(name) !== value) from.setAttribute(name, value);
  morphChildren(from, to);
}

function morphChildren(from, to) {
  const wanted = [...to.childNodes];
  wanted.forEach((node, index) => {
    const old = from.childNodes[index];
    if (old) morph(old, node); else from.append(node);
  });
  while (from.childNodes.length > wanted.length) from.lastChild.remove();
}

const hasSelection = () => {
  const selection = getSelection();
  return !selection.isCollapsed && live.contains(selection.anchorNode);
};

function show() {
  if (waiting === null || isPaused || isPressed || hasSelection()) return;
  const page = new DOMParser().parseFromString(waiting, "text/html");
  waiting = null;
  morphChildren(live, page.body);
  shownAt = performance.now();
  live.dataset.states = Number(live.dataset.states || 0) + 1;
}

const format = s => s < 120 ? s.toFixed(1) + " s" : s < 7200 ? (s / 60).toFixed(0) + " min" : (s / 3600).toFixed(1) + " h";

function tick() {  // durations go on between two states
  if (isPaused || !source || hasSelection()) return;
  const passed = (performance.now() - shownAt) / 1000;
  for (const element of live.querySelectorAll("[data-since]"))
    element.textContent = format(Number(element.dataset.since) + passed);
  for (const element of live.querySelectorAll("[data-until]"))
    element.textContent = format(Math.max(0, Number(element.dataset.until) - passed));
}

function close() { if (source) source.close(); source = null; }

function open() {
  close();
  if (isPaused || document.hidden) return;
  source = new EventSource(location.href);
  source.addEventListener("state", event => { say("Live", false); waiting = JSON.parse(event.data); show(); });
  source.addEventListener("end", () => { close(); say("The operator has stopped", true); setTimeout(check, RETRY); });
  source.onerror = () => {
    say("Not connected", true);
    if (source && source.readyState === EventSource.CLOSED) { close(); setTimeout(check, RETRY); }
  };
}

async function check() {  // why there is no stream: the session has ended, or the operator, or there are too many
  if (source || isPaused || document.hidden) return;
  try {
    const response = await fetch(location.href, { headers: { Accept: "text/html" }, redirect: "manual" });
    if (response.type === "opaqueredirect") { location.reload(); return; }
    if (response.ok) { open(); return; }
  } catch { /* it does not respond */ }
  setTimeout(check, RETRY);
}

pause.onclick = () => {
  isPaused = !isPaused;
  pause.setAttribute("aria-pressed", String(isPaused));
  if (isPaused) { close(); say("Paused", false); } else { say("Connecting", false); open(); }
};
document.addEventListener("visibilitychange", () => document.hidden ? close() : open());
document.addEventListener("pointerdown", () => { isPressed = true; });
for (const name of ["pointerup", "pointercancel"]) document.addEventListener(name, () => { isPressed = false; setTimeout(show); });
document.addEventListener("selectionchange", show);
pause.hidden = false;
say("Connecting", false);
open();
setInterval(tick, 1000);
