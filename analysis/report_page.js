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
    const narrow = box.clientWidth < 480;
    return {
      height: 400, margin: { l: 50, r: 10, t: 36, b: 50 }, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      font: { color: text, size: narrow ? 11 : 12, family: "system-ui, Liberation Sans, DejaVu Sans, sans-serif" },
      modebar: { bgcolor: "rgba(0,0,0,0)", color: style.getPropertyValue("--quiet"), activecolor: text },
      hoverlabel: { namelength: -1 }, legend: { orientation: "h", y: narrow ? -0.4 : -0.22, yanchor: "top", x: 0 },
      ...view.layout, xaxis: { ...axis, ...view.layout.xaxis }, yaxis: { ...axis, ...view.layout.yaxis },
    };
  }

  function draw(figure, box) {
    const view = figure.views[[...box.parentNode.querySelectorAll("[data-control]")].map(c => c.value).join("/")];
    const note = box.parentNode.querySelector("small");
    note.textContent = view.note || "";
    Plotly.react(box, inScheme(view.traces), layoutOf(view, box), {
      responsive: true, displaylogo: false, modeBarButtonsToRemove: ["lasso2d", "select2d"],
      toImageButtonOptions: { format: "svg", filename: "petra" },
    });
    box.style.minHeight = "";
    drawn.add(box);
  }

  /* A list, or where the choices have an order that one goes through, a slider with the name of its place beside it. */
  function addControl(label, control, redraw) {
    const input = document.createElement(control.kind === "range" ? "input" : "select");
    input.dataset.control = "";
    if (control.kind === "range") {
      const name = document.createElement("output");
      Object.assign(input, { type: "range", min: 0, max: control.choices.length - 1, step: 1, value: 0 });
      const say = () => { name.textContent = control.choices[input.value]; input.setAttribute("aria-valuetext", control.choices[input.value]); };
      input.addEventListener("input", say);
      say();
      label.append(input, name);
    } else {
      control.choices.forEach((choice, number) => input.append(new Option(choice, number)));
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
