/* SPDX-License-Identifier: Apache-2.0 */
// For tests: goes through every choice of every control of a report, and tells how many views there were and how many were drawn empty.
(async () => {
  const wait = ms => new Promise(done => setTimeout(done, ms));
  for (let tries = 0; tries < 100 && document.getElementById("state").textContent !== ""; tries++) await wait(100);
  for (const figure of document.querySelectorAll("figure")) {
    figure.scrollIntoView();
    await wait(50);
  }
  let views = 0, empty = 0;
  const look = figure => {
    views++;
    if (!figure.querySelector(".main-svg .xtitle, .main-svg .g-xtitle") || !figure.querySelector(".trace, .hm, .bars, .heatmaplayer image")) empty++;
  };
  for (const figure of document.querySelectorAll("figure")) {
    look(figure);
    for (const control of figure.querySelectorAll("[data-control]")) {
      const count = control.options ? control.options.length : +control.max + 1;
      for (let choice = 1; choice < count; choice++) {
        control.value = choice;
        control.dispatchEvent(new Event("input"));
        await wait(10);
        look(figure);
      }
    }
  }
  console.log("walked: " + JSON.stringify({ views, empty, page: document.documentElement.scrollWidth, window: window.innerWidth }));
})();
