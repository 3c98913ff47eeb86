// One choice of theme for pages and admin: taken over before the admin paints, handed back when it is left.
(() => {
  const CHOICES = ["light", "dark"];
  try {
    const chosen = localStorage.getItem("inflight.theme");
    localStorage.setItem("adminTheme", JSON.stringify(CHOICES.includes(chosen) ? chosen : "auto"));
    window.addEventListener("pagehide", () => {
      const left = JSON.parse(localStorage.getItem("adminTheme") ?? '"auto"');
      if (CHOICES.includes(left)) localStorage.setItem("inflight.theme", left);
      else localStorage.removeItem("inflight.theme");
    });
  } catch {
    // Storage may be refused; each side keeps its default then.
  }
})();
