// What the theme leaves out for keyboards and screen readers: levels of headings, names of landmarks, and scrolling by keys.
document.addEventListener("DOMContentLoaded", () => {
  const set = (selector, name, value) =>
    document.querySelectorAll(selector).forEach((element) => element.setAttribute(name, value));
  set("p.caption[role=heading]", "aria-level", 2);
  set("aside.sidebar-drawer", "aria-label", "Pages");
  set("aside.toc-drawer", "aria-label", "On this page");
  set("pre, .table-wrapper, .picture", "tabindex", 0);
});
