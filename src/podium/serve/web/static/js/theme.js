// Runs before the page is drawn, so that it never flashes in the wrong colours.
(() => {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const set = () => {
    const own = localStorage.getItem("podium-theme");
    document.documentElement.dataset.theme = own || (dark.matches ? "dark" : "light");
  };
  set();
  dark.addEventListener("change", set);
})();
