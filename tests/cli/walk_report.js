/* SPDX-License-Identifier: Apache-2.0 */
// For tests: goes through every choice of every control of a report, and says how many views there were, how many were drawn empty, and
// what timelines show: all of it, zoomed in to its middle fifth, and again all of it.
(async () => {
  const wait = ms => new Promise(done => setTimeout(done, ms));
  for (let tries = 0; tries < 100 && document.getElementById("state").textContent !== ""; tries++) await wait(100);
  for (const figure of document.querySelectorAll("figure")) {
    figure.scrollIntoView();
    await wait(50);
  }
  let views = 0, empty = 0;
  const timelines = [];
  const parts = box => {
    const found = {};
    for (const trace of box.data) if (trace.meta && trace.visible !== false && trace.x[0] !== null) found[trace.meta.part] = (found[trace.meta.part] || 0) + trace.x.length;
    return { range: [...box.layout.xaxis.range], columns: Math.floor(Math.max(100, box.clientWidth - 60) / 2), parts: found };
  };
  const zoom = async figure => {
    const box = figure.querySelector(".plot"), all = parts(box), [low, high] = all.range;
    await Plotly.relayout(box, { "xaxis.range": [low + 0.4 * (high - low), low + 0.6 * (high - low)] });
    await wait(10);
    const zoomed = parts(box);
    await Plotly.relayout(box, { "xaxis.range": [...all.range] });
    await wait(10);
    timelines.push({ all, zoomed, reset: parts(box) });
  };
  const look = async figure => {
    views++;
    if (!figure.querySelector(".main-svg .xtitle, .main-svg .g-xtitle") || !figure.querySelector(".trace, .hm, .bars, .heatmaplayer image")) empty++;
    if (figure.closest("#timeline")) await zoom(figure);
  };
  for (const figure of document.querySelectorAll("figure")) {
    await look(figure);
    for (const control of figure.querySelectorAll("[data-control]")) {
      const count = control.options ? control.options.length : +control.max + 1;
      for (let choice = 1; choice < count; choice++) {
        control.value = choice;
        control.dispatchEvent(new Event("input"));
        await wait(10);
        await look(figure);
      }
    }
  }
  const legends = [...document.querySelectorAll(".legendtext")].map(text => text.textContent);
  console.log("walked: " + JSON.stringify({ views, legends, empty, timelines, page: document.documentElement.scrollWidth, window: window.innerWidth }));
})();
