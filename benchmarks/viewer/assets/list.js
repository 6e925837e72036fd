// A list of any length of which only the rows in sight exist. Behaves as a listbox: one stop of the tab key, arrows
// inside, Enter opens.

import { freshId, h } from "./dom.js";

const SPARE = 6; // rows kept above and below what is in sight

export class VirtualList {
  // render(item) gives the content of a row; open(item) is called for Enter and clicks.
  constructor({ label, rowHeight, render, open }) {
    this.rowHeight = rowHeight;
    this.renderRow = render;
    this.open = open;
    this.items = [];
    this.active = -1;
    this.current = null;
    this.rows = new Map();
    this.key = freshId("list");
    this.space = h("div", { class: "space", role: "presentation" });
    this.element = h(
      "div",
      { class: "virtual", role: "listbox", tabindex: "0", "aria-label": label, onscroll: () => this.soon(), onkeydown: (event) => this.onkey(event) },
      this.space,
    );
    this.element.addEventListener("focus", () => {
      if (this.active < 0 && this.items.length) this.move(0);
    });
    new ResizeObserver(() => this.soon()).observe(this.element);
  }

  // Show other items. The one that was active stays so if it is among them.
  set(items) {
    const kept = this.active >= 0 ? this.items[this.active] : this.current;
    this.items = items;
    this.space.style.height = `${items.length * this.rowHeight}px`;
    this.clear();
    this.active = items.indexOf(kept);
    this.mark();
    this.render();
  }

  // Mark the item that is open elsewhere on the page.
  show(item) {
    this.current = item;
    const at = this.items.indexOf(item);
    if (at >= 0) this.move(at, false);
    this.clear();
    this.render();
  }

  move(at, scroll = true) {
    this.active = Math.max(0, Math.min(this.items.length - 1, at));
    const top = this.active * this.rowHeight;
    const { scrollTop, clientHeight } = this.element;
    if (top < scrollTop) this.element.scrollTop = top;
    else if (top + this.rowHeight > scrollTop + clientHeight) this.element.scrollTop = top + this.rowHeight - clientHeight;
    if (scroll) this.render();
    this.mark();
  }

  onkey(event) {
    if (event.altKey || event.ctrlKey || event.metaKey || !this.items.length) return;
    const page = Math.max(1, Math.floor(this.element.clientHeight / this.rowHeight) - 1);
    const steps = { ArrowDown: 1, ArrowUp: -1, j: 1, k: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity };
    if (event.key in steps) this.move((this.active < 0 ? -1 : this.active) + steps[event.key]);
    else if ((event.key === "Enter" || event.key === " ") && this.active >= 0) this.open(this.items[this.active]);
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  soon() {
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => {
      this.waiting = false;
      this.render();
    });
  }

  clear() {
    for (const row of this.rows.values()) row.remove();
    this.rows.clear();
  }

  render() {
    const { scrollTop, clientHeight } = this.element;
    const first = Math.max(0, Math.floor(scrollTop / this.rowHeight) - SPARE);
    const last = Math.min(this.items.length, Math.ceil((scrollTop + clientHeight) / this.rowHeight) + SPARE);
    for (const [at, row] of this.rows) {
      if ((at < first || at >= last) && at !== this.active) {
        row.remove();
        this.rows.delete(at);
      }
    }
    for (let at = first; at < last; at += 1) this.row(at);
    if (this.active >= 0) this.row(this.active);
    this.mark();
  }

  row(at) {
    if (this.rows.has(at)) return;
    const item = this.items[at];
    const row = h(
      "div",
      {
        class: "row", role: "option", id: `${this.key}-${at}`, "aria-posinset": at + 1, "aria-setsize": this.items.length,
        "aria-selected": item === this.current ? "true" : "false", style: { transform: `translateY(${at * this.rowHeight}px)` },
        onclick: () => {
          this.move(at);
          this.open(item);
        },
      },
      this.renderRow(item),
    );
    this.rows.set(at, row);
    this.space.append(row);
  }

  mark() {
    for (const [at, row] of this.rows) row.classList.toggle("active", at === this.active);
    if (this.rows.has(this.active)) this.element.setAttribute("aria-activedescendant", `${this.key}-${this.active}`);
    else this.element.removeAttribute("aria-activedescendant");
  }
}
