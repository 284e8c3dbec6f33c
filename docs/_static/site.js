// What the theme leaves out for keyboards and screen readers, and the tabs of the first page.

// The first page shows one kind of kernels at a time. Without scripts it shows all.
function makeTabs(ids) {
  const panels = ids.map((id) => document.getElementById(id));
  if (!document.querySelector("section#install") || panels.includes(null)) return;
  const list = document.createElement("div");
  list.className = "tabs";
  list.setAttribute("role", "tablist");
  list.setAttribute("aria-label", "Kinds of kernels");
  const tabs = panels.map((panel) => {
    const tab = document.createElement("button");
    tab.textContent = panel.querySelector("h2").firstChild.textContent;
    tab.setAttribute("role", "tab");
    tab.setAttribute("aria-controls", panel.id);
    tab.addEventListener("click", () => show(panel));
    panel.setAttribute("role", "tabpanel");
    panel.setAttribute("aria-label", tab.textContent);
    list.append(tab);
    return tab;
  });
  function show(shown) {
    panels.forEach((panel, index) => {
      panel.hidden = panel !== shown;
      tabs[index].setAttribute("aria-selected", panel === shown);
      tabs[index].tabIndex = panel === shown ? 0 : -1;
    });
  }
  function follow() {
    const panel = panels.find((each) => `#${each.id}` === location.hash);
    if (!panel) return;
    show(panel);
    panel.scrollIntoView();
  }
  list.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const next = (tabs.indexOf(document.activeElement) + step + tabs.length) % tabs.length;
    show(panels[next]);
    tabs[next].focus();
  });
  addEventListener("hashchange", follow);
  panels[0].before(list);
  show(panels[0]);
  follow();
}

document.addEventListener("DOMContentLoaded", () => {
  const set = (selector, name, value) =>
    document.querySelectorAll(selector).forEach((element) => element.setAttribute(name, value));
  set("p.caption[role=heading]", "aria-level", 2);
  set("aside.sidebar-drawer", "aria-label", "Pages");
  set("aside.toc-drawer", "aria-label", "On this page");
  set("pre, .table-wrapper, .picture", "tabindex", 0);
  makeTabs(["numba", "triton", "a-package-that-you-do-not-own", "cuda-c"]);
});
