// Where runs come from: a server on this machine, or the page itself. Both give the same things.
//
//   load()                     the index of every run
//   episode(run, n)            one record
//   search(run, text, found)   calls found(numbers, share done) as it goes on; ends when done or aborted

const KEPT = 12; // chunks of texts that stay unpacked

export function makeStore() {
  return document.getElementById("index") ? new PageStore() : new ServerStore();
}

class ServerStore {
  constructor() {
    this.live = true;
    this.runs = [];
  }

  async load() {
    this.runs = (await this.get("/api/runs", {})).runs;
    return this.runs;
  }

  summary(run) {
    return this.get("/api/summary", { run });
  }

  episode(run, n) {
    return this.get("/api/episode", { run, number: n, generation: this.runs[run].generation });
  }

  async search(run, text, signal, found) {
    const { generation, columns } = this.runs[run];
    let from = 0;
    while (from !== null && !signal.aborted) {
      const part = await this.get("/api/search", { run, q: text, from, generation }, signal);
      from = part.next;
      found(part.found, from === null ? 1 : from / columns.id.length);
    }
  }

  async get(path, values, signal) {
    const response = await fetch(`${path}?${new URLSearchParams(values)}`, { signal });
    const answer = await response.json();
    if (!response.ok) throw new Error(answer.error);
    return answer;
  }
}

class PageStore {
  constructor() {
    this.live = false;
    this.runs = [];
    this.chunks = new Map();
  }

  async load() {
    this.runs = JSON.parse(await unpack("index")).runs;
    document.getElementById("index").remove();
    return this.runs;
  }

  async summary(run) {
    return this.runs[run].summary;
  }

  async episode(run, n) {
    const [key, first] = this.runs[run].chunks.findLast((chunk) => chunk[1] <= n);
    return JSON.parse((await this.lines(key))[n - first]);
  }

  async search(run, text, signal, found) {
    const wanted = text.toLowerCase();
    const quick = /^[ -~]*$/.test(wanted) ? JSON.stringify(wanted).slice(1, -1) : "";
    const { chunks, columns } = this.runs[run];
    for (const [key, first, size] of chunks) {
      const lines = await this.lines(key);
      const hits = [];
      lines.forEach((line, i) => {
        if (line.toLowerCase().includes(quick) && texts(JSON.parse(line)).some((one) => one.toLowerCase().includes(wanted))) {
          hits.push(first + i);
        }
      });
      await new Promise((done) => setTimeout(done)); // the page stays alive in between
      if (signal.aborted) return;
      found(hits, (first + size) / columns.id.length);
    }
    if (!chunks.length) found([], 1);
  }

  // The lines of a chunk; those of the last few chunks are kept.
  async lines(key) {
    let lines = this.chunks.get(key);
    this.chunks.delete(key);
    lines ??= (await unpack(`chunk-${key}`)).split("\n");
    this.chunks.set(key, lines);
    if (this.chunks.size > KEPT) this.chunks.delete(this.chunks.keys().next().value);
    return lines;
  }
}

async function unpack(id) {
  const packed = atob(document.getElementById(id).textContent);
  const bytes = new Uint8Array(packed.length);
  for (let i = 0; i < packed.length; i += 1) bytes[i] = packed.charCodeAt(i);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Response(stream).text();
}

// What a search looks into, as benchmarks/viewer/source.py has it.
function texts(episode) {
  const infos = (turn) => Object.entries(turn.info).flatMap(([key, value]) => [key, typeof value === "string" ? value : JSON.stringify(value)]);
  const turns = episode.turns.flatMap((turn) => [turn.action, turn.observation, turn.invalid ?? "", ...infos(turn)]);
  return [episode.id, episode.error ?? "", ...turns];
}
