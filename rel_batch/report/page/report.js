// The browser of instances. Everything that a model or a data file wrote goes into the page as
// text (textContent), never as markup.
"use strict";
(async () => {
  const PAGE = 25;
  const byId = (id) => document.getElementById(id);
  const found = byId("found"), list = byId("list"), form = byId("filters");

  const unpack = async (element) => {
    const bytes = Uint8Array.from(atob(element.textContent), (c) => c.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return JSON.parse(await new Response(stream).text());
  };
  if (!("DecompressionStream" in window)) {
    found.textContent = "This browser is too old to unpack the instances.";
    return;
  }
  const index = await unpack(byId("index"));
  const blockElements = document.getElementsByClassName("block");
  const blocks = new Map();
  const block = (number) => {
    if (!blocks.has(number)) blocks.set(number, unpack(blockElements[number]));
    return blocks.get(number);
  };
  const texts = async (instance) =>
    (await block(Math.floor(instance / index.block)))[instance % index.block];

  // The filters: what they offer, and the part of the address that they are kept in.
  const element = (name, className, text) => {
    const made = document.createElement(name);
    if (className) made.className = className;
    if (text !== undefined) made.textContent = text;
    return made;
  };
  const offer = (name, first, values, labels = values) => {
    const select = form.elements[name];
    [["", first], ...values.map((value, n) => [value, labels[n]])].forEach(([value, label]) => {
      const option = element("option", "", label);
      option.value = value;
      select.append(option);
    });
  };
  offer("task", "all", index.tasks);
  offer("arm", "any", index.arms);
  offer("verdict", "any", index.verdicts);
  offer("failure", "any", index.failures, index.meanings);
  offer("moved", "either way or not", ["gained", "lost"], ["became correct", "became wrong"]);
  offer("base", "(an arm)", index.arms);
  const NAMES = ["task", "arm", "verdict", "failure", "low", "high", "moved", "base", "search"];
  const settings = () =>
    Object.fromEntries(NAMES.map((name) => [name, form.elements[name].value.trim()]));
  const CORRECT = index.verdicts.indexOf("correct");
  const share = (rows, arm) => {
    const some = rows.filter((row) => row[0] === arm);
    return some.length ? some.filter((row) => row[2] === CORRECT).length / some.length : null;
  };

  const matches = (wanted) => {
    const task = wanted.task === "" ? -1 : index.tasks.indexOf(wanted.task);
    const arm = wanted.arm === "" ? -1 : index.arms.indexOf(wanted.arm);
    const base = wanted.base === "" ? -1 : index.arms.indexOf(wanted.base);
    const verdict = wanted.verdict === "" ? -1 : index.verdicts.indexOf(wanted.verdict);
    const failure = wanted.failure === "" ? -1 : index.failures.indexOf(wanted.failure);
    const low = wanted.low === "" ? -Infinity : Number(wanted.low);
    const high = wanted.high === "" ? Infinity : Number(wanted.high);
    return (n) => {
      if (task >= 0 && index.task[n] !== task) return false;
      if (index.rc[n] < low || index.rc[n] > high) return false;
      const rows = index.rows[n];
      if (wanted.moved && arm >= 0 && base >= 0) {
        const before = share(rows, base), after = share(rows, arm);
        if (before === null || after === null) return false;
        if (wanted.moved === "gained" ? after <= before : after >= before) return false;
      }
      return rows.some((row) => (arm < 0 || row[0] === arm) && (verdict < 0 || row[2] === verdict)
        && (failure < 0 || row[3] === failure));
    };
  };

  // Searching reads every text once; a newer search ends an older one.
  let turn = 0, shown = [], page = 0;
  const search = async (instances, needle, mine) => {
    const hits = [];
    for (const n of instances) {
      if (index.id[n].toLowerCase().includes(needle)) { hits.push(n); continue; }
      const [question, gold, rows] = await texts(n);
      if (mine !== turn) return null;
      if ([question, gold, ...rows.map((row) => row[0])].some((t) => t.toLowerCase().includes(needle))) hits.push(n);
    }
    return hits;
  };
  const update = async () => {
    const mine = ++turn, wanted = settings();
    const keep = matches(wanted);
    let instances = index.id.map((_, n) => n).filter(keep);
    if (wanted.search) {
      found.textContent = "Searching …";
      instances = await search(instances, wanted.search.toLowerCase(), mine);
      if (instances === null) return;
    }
    shown = instances;
    page = 0;
    const unclear = wanted.moved && (!wanted.arm || !wanted.base)
      ? " Choose both arms to see what changed between them." : "";
    found.textContent = `${shown.length.toLocaleString("en")} of ${index.id.length.toLocaleString("en")} instances.${unclear}`;
    render();
  };

  const section = (parent, title, text) => {
    parent.append(element("h3", "", title));
    const pre = element("pre", "", text === "" ? "(empty)" : text);
    pre.tabIndex = 0;
    pre.setAttribute("aria-label", title);
    parent.append(pre);
  };
  const fill = async (body, n) => {
    const [question, gold, rows] = await texts(n);
    body.textContent = "";
    section(body, "Prompt", question);
    section(body, "Gold", gold);
    index.rows[n].forEach(([arm, sample, verdict, failure], place) => {
      const [reply, prediction, thought, error, tokens, status] = rows[place];
      const name = index.arms[arm] + (sample ? `, sample ${sample}` : "");
      if (thought) section(body, `${name}: thought`, thought);
      section(body, `${name}: reply`, reply);
      const why = element("p", "why");
      why.append(element("b", index.verdicts[verdict], index.verdicts[verdict]));
      const because = failure < 0 ? "" : ` because: ${index.meanings[failure]}.`;
      const read = prediction === null ? " Nothing was read from it." : ` Read as ${prediction}.`;
      why.append(`${because}${read} Status ${status}, ${tokens.toLocaleString("en")} tokens.${error ? ` Error: ${error}.` : ""}`);
      body.append(why);
    });
  };
  const render = () => {
    list.textContent = "";
    const from = page * PAGE;
    shown.slice(from, from + PAGE).forEach((n) => {
      const item = element("li"), details = element("details"), summary = element("summary");
      summary.append(element("span", "id", index.id[n]));
      summary.append(element("span", "facts", `${index.tasks[index.task[n]]} ${index.subset[n]}, RC ${index.rc[n]}`));
      const chips = element("span", "chips");
      const counts = new Map();
      index.rows[n].forEach(([arm, , verdict]) => {
        const key = `${arm} ${verdict}`;
        counts.set(key, (counts.get(key) || 0) + 1);
      });
      counts.forEach((count, key) => {
        const [arm, verdict] = key.split(" ").map(Number);
        const times = count > 1 ? ` ×${count}` : "";
        const chip = element("span", "", `${index.arms[arm]}: `);
        chip.append(element("b", index.verdicts[verdict], index.verdicts[verdict] + times));
        chips.append(chip);
      });
      summary.append(chips);
      const body = element("div", "body");
      details.append(summary, body);
      details.addEventListener("toggle", () => { if (details.open && !body.hasChildNodes()) fill(body, n); });
      item.append(details);
      list.append(item);
    });
    const pages = Math.max(1, Math.ceil(shown.length / PAGE));
    byId("pages").hidden = pages === 1;
    byId("page").textContent = `Page ${(page + 1).toLocaleString("en")} of ${pages.toLocaleString("en")}`;
    byId("previous").disabled = page === 0;
    byId("next").disabled = page === pages - 1;
  };
  const turnPage = (step) => {
    page += step;
    render();
    found.scrollIntoView();
    const first = list.querySelector("summary");
    if (first) first.focus({ preventScroll: true });
  };
  byId("previous").addEventListener("click", () => turnPage(-1));
  byId("next").addEventListener("click", () => turnPage(1));

  // An address like #task=REL-A1&verdict=unparsed opens the page with these filters.
  const fromAddress = () => {
    const wanted = new URLSearchParams(location.hash.slice(1));
    if (!NAMES.some((name) => wanted.has(name))) return false;
    NAMES.forEach((name) => { form.elements[name].value = wanted.get(name) || ""; });
    return true;
  };
  let waiting;
  form.addEventListener("input", () => {
    clearTimeout(waiting);
    waiting = setTimeout(() => {
      const kept = Object.entries(settings()).filter(([, value]) => value !== "");
      history.replaceState(null, "", "#" + (kept.length ? new URLSearchParams(kept) : "browse"));
      update();
    }, 150);
  });
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("reset", () => setTimeout(() => {
    history.replaceState(null, "", "#browse");
    update();
  }));
  window.addEventListener("hashchange", async () => {
    if (!fromAddress()) return;
    await update();
    byId("browse").scrollIntoView();
  });
  form.hidden = false;
  const asked = fromAddress();
  await update();
  if (asked) byId("browse").scrollIntoView();
  document.documentElement.dataset.ready = "yes";
})();
