/* SPDX-License-Identifier: Apache-2.0 */
/* Draws the figures of a report: unpacks the library, then each figure when it comes near the window. */
"use strict";
(async () => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const drawn = new Set();

  const tell = text => { document.getElementById("state").textContent = text; };

  async function load() {
    if (!("DecompressionStream" in window))
      throw new Error("this browser cannot unpack the plotting library (expected one of 2023 or later)");
    const packed = Uint8Array.from(atob(document.getElementById("library").textContent), c => c.charCodeAt(0));
    const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
    const script = document.createElement("script");
    script.textContent = await new Response(stream).text();
    document.head.append(script);
  }

  /* What is black on white has to be light on black. */
  const inScheme = value =>
    value === "#000000" && dark.matches ? "#f0f0f0"
      : Array.isArray(value) ? (value.length && typeof value[0] === "object" ? value.map(inScheme) : value)
      : value && typeof value === "object" ? Object.fromEntries(Object.entries(value).map(([key, of]) => [key, inScheme(of)]))
      : value;

  function layoutOf(view, box) {
    const style = getComputedStyle(document.documentElement);
    const line = style.getPropertyValue("--line"), text = style.getPropertyValue("--text");
    const axis = { gridcolor: line, zerolinecolor: line, linecolor: line, tickcolor: line };
    const narrow = box.clientWidth < 480, height = view.layout.height || 400;
    /* More than two lines of legend are not taken from the figure: a letter is about 7 pixels wide, a sample of a line with its margin 55. */
    const lines = view.traces.filter(trace => trace.showlegend !== false).map(trace => 55 + 7 * (trace.name || "").length).reduce((a, b) => a + b, 0);
    const more = view.traces.length > 1 ? 19 * Math.max(0, Math.ceil(1.2 * lines / Math.max(200, box.clientWidth - 60)) - 2) : 0;
    return {
      margin: { l: 50, r: 10, t: 36, b: 50 }, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      font: { color: text, size: narrow ? 11 : 12, family: "system-ui, Liberation Sans, DejaVu Sans, sans-serif" },
      modebar: { bgcolor: "rgba(0,0,0,0)", color: style.getPropertyValue("--quiet"), activecolor: text },
      hoverlabel: { namelength: -1 }, legend: { orientation: "h", y: Math.min(narrow ? -0.4 : -0.22, -64 / (height - 86)), yanchor: "top", x: 0 },
      ...view.layout, height: height + more, xaxis: { ...axis, ...view.layout.xaxis }, yaxis: { ...axis, ...view.layout.yaxis },
    };
  }

  /* What is drawn of a timeline's actions from `low` to `high` on so many pixels, such that none vanishes: plot_timeline.details says
     the same of a figure. Returns by "KIND PART" the arrays of a trace. */
  function detail(actions, low, high, pixels) {
    const columns = Math.max(1, Math.floor(pixels / 2)), column = (high - low) / columns, parts = {}, shared = new Map(), ticks = new Map();
    const part = name => parts[name] = parts[name] || { base: [], x: [], y: [], width: [], customdata: [] };
    const place = time => Math.min(columns - 1, Math.max(0, Math.floor((time - low) / column)));
    const number = value => +value.toPrecision(9);
    const few = names => names.length + " actions: " + names.slice(0, 8).join(", ") + (names.length > 8 ? ", …" : "");
    const at = (map, key, make) => map.get(key) || map.set(key, make()).get(key);
    for (let i = 0; i < actions.kind.length; i++) {
      const kind = actions.kind[i], start = actions.start[i], end = actions.end[i], stage = actions.stage[i], order = actions.order.indexOf(kind);
      if (order < 0 || end < low || start > high) continue;
      const name = kind + actions.microbatch[i], lane = kind === "F" ? 0 : 1, [top, height] = actions.lanes[lane];
      if (end - start >= actions.wide * column) {
        const bars = part(kind + " wide");
        bars.base.push(start), bars.x.push(end - start), bars.y.push(stage + top + height / 2), bars.width.push(height);
        bars.customdata.push(`${name} at stage ${stage}<br>from ${number(start)} for ${number(end - start)} ${actions.unit}`);
      } else if (kind === "U") {
        at(ticks, stage + "/" + place((start + end) / 2), () => []).push(name);
      } else {
        const two = actions.lanes[0][0] !== actions.lanes[1][0], first = place(start), last = place(end);
        for (let c = first; c <= last; c++) {
          const share = (Math.min(end, low + (c + 1) * column) - Math.max(start, low + c * column)) / column;
          if (share <= 0 && c > first) continue;
          const cell = at(shared, stage + "/" + (two ? lane : 1) + "/" + c, () => new Map());
          const of = at(cell, order, () => ({ share: 0, names: [] }));
          of.share += Math.max(0, share), of.names.push(name);
        }
      }
    }
    for (const [key, names] of ticks) {
      const [stage, c] = key.split("/").map(Number), marks = part("U ticks");
      marks.x.push(low + (c + 0.5) * column), marks.y.push(stage + actions.tick);
      marks.customdata.push(`stage ${stage}<br>${names.length === 1 ? names[0] : few(names)}`);
    }
    for (const [key, cell] of shared) {
      const [stage, lane, c] = key.split("/").map(Number), kinds = [...cell.keys()].sort((a, b) => a - b);
      const heights = kinds.map(kind => Math.max(actions.least, cell.get(kind).share));
      let [top, room] = actions.lanes[lane];
      const scale = room / Math.max(1, heights.reduce((a, b) => a + b));
      kinds.forEach((kind, k) => {
        const bars = part(actions.order[kind] + " narrow"), height = scale * heights[k], of = cell.get(kind);
        bars.base.push(low + c * column), bars.x.push(column), bars.y.push(stage + top + height / 2), bars.width.push(height);
        bars.customdata.push(`stage ${stage}, ${Math.round(100 * Math.min(1, of.share))} % of this time<br>${few(of.names)}`);
        top += height;
      });
    }
    return parts;
  }

  /* The traces of a view; a timeline's with what its pixels can show of the range. A trace without data keeps its place in the legend. */
  function tracesOf(view, box, range) {
    if (!view.actions) return view.traces;
    const parts = detail(view.actions, range[0], range[1], Math.max(100, box.clientWidth - 60));
    return view.traces.map(trace => {
      const found = parts[trace.meta.kind + " " + trace.meta.part];
      if (trace.meta.kind === "U" && !found) return { ...trace, visible: false }; /* it has two, bars and ticks */
      const { base, width, ...others } = found || { base: [null], x: [null], y: [null], width: [null], customdata: [""] };
      return { ...trace, ...others, ...(trace.type === "bar" ? { base, width } : {}) };
    });
  }

  const viewOf = (figure, box) => figure.views[[...box.parentNode.querySelectorAll("[data-control]")].map(c => c.value).join("/")];

  /* `shown`: the axes that were zoomed to; without, and of a figure's other view, all of it. */
  function draw(figure, box, shown) {
    const view = viewOf(figure, box), layout = layoutOf(view, box);
    const note = box.parentNode.querySelector("small");
    note.textContent = view.note || "";
    if (view.actions && box.clientWidth < 480) layout.height += 60; /* its legend takes several lines */
    if (shown) for (const name of ["xaxis", "yaxis"]) layout[name] = { ...layout[name], range: [...shown[name].range] };
    else if (view.actions && drawn.delete(box)) Plotly.purge(box);
    Plotly.react(box, inScheme(tracesOf(view, box, layout.xaxis.range)), layout, {
      responsive: true, displaylogo: false, modeBarButtonsToRemove: ["lasso2d", "select2d", ...(view.actions ? ["autoScale2d"] : [])],
      doubleClick: view.actions ? "reset" : "reset+autosize", toImageButtonOptions: { format: "svg", filename: "petra" },
    });
    box.style.minHeight = "";
    if (!drawn.has(box) && view.actions) /* zoomed or resized: as much detail as there is room for now */
      box.on("plotly_relayout", () => draw(figure, box, box.layout));
    drawn.add(box);
  }

  /* A list, or where the choices have an order that one goes through, a slider with the name of its place beside it. */
  function addControl(label, control, redraw) {
    const input = document.createElement(control.kind === "range" ? "input" : "select");
    input.dataset.control = "";
    if (control.kind === "range") {
      const name = document.createElement("output");
      Object.assign(input, { type: "range", min: 0, max: control.choices.length - 1, step: 1, value: control.first });
      const say = () => { name.textContent = control.choices[input.value]; input.setAttribute("aria-valuetext", control.choices[input.value]); };
      input.addEventListener("input", say);
      say();
      label.append(input, name);
    } else {
      control.choices.forEach((choice, number) => input.append(new Option(choice, number, false, number === control.first)));
      label.append(input);
    }
    input.addEventListener("input", redraw);
  }

  function place(figure, parent) {
    const node = document.createElement("figure"), caption = document.createElement("figcaption"), box = document.createElement("div");
    const controls = document.createElement("div"), note = document.createElement("small");
    caption.textContent = figure.caption;
    controls.className = "controls";
    for (const control of figure.controls) {
      const label = document.createElement("label");
      label.append(control.label + " ");
      if (control.choices.length === 1) label.hidden = true;
      addControl(label, control, () => draw(figure, box));
      controls.append(label);
    }
    box.className = "plot";
    box.setAttribute("role", "group");
    box.setAttribute("aria-label", figure.caption);
    node.append(caption, controls, box, note);
    parent.append(node);
    box.style.minHeight = "400px";
    new IntersectionObserver((entries, observer) => {
      if (!entries.some(entry => entry.isIntersecting)) return;
      observer.disconnect();
      draw(figure, box);
    }, { rootMargin: "800px" }).observe(box);
    dark.addEventListener("change", () => { if (drawn.has(box)) draw(figure, box); });
  }

  try {
    await load();
    for (const section of data) for (const figure of section.figures) place(figure, document.getElementById(section.id).querySelector(".figures"));
    tell("");
  } catch (error) {
    tell("The figures cannot be drawn: " + error.message);
    throw error;
  }
})();
