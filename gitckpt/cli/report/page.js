"use strict";
{
  const changes = [...document.querySelectorAll(".change")];
  const blocks = [...document.querySelectorAll(".group"), ...document.querySelectorAll("section")];
  const texts = changes.map((change) => {
    const context = change.parentElement.querySelector("h3").textContent;
    const section = change.closest("section").querySelector("h2").textContent;
    return [section, context, change.textContent].join(" ").toLowerCase();
  });
  const field = document.getElementById("filter");
  const show = () => {
    const words = field.value.toLowerCase().split(/\s+/);
    let shown = 0;
    changes.forEach((change, index) => {
      change.hidden = !words.every((word) => texts[index].includes(word));
      shown += change.hidden ? 0 : 1;
    });
    for (const block of blocks) block.hidden = !block.querySelector(".change:not([hidden])");
    document.getElementById("count").textContent = `${shown} of ${changes.length}`;
  };
  const fold = (isOpen) => () => {
    for (const change of changes) if (!change.hidden) change.open = isOpen;
  };
  const openTarget = () => {
    const target = document.getElementById(location.hash.slice(1));
    if (target?.tagName === "DETAILS") target.open = true;
  };
  if (field) {
    field.closest("p").hidden = false;
    field.addEventListener("input", show);
    document.getElementById("open").addEventListener("click", fold(true));
    document.getElementById("close").addEventListener("click", fold(false));
    addEventListener("hashchange", openTarget);
    openTarget();
    show();
  }
}
