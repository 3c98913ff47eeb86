// Copy buttons. The clipboard API is missing on plain http hosts other than loopback, so there is a second way.
import { gettext } from "./words.js";
import { toast } from "./toast.js";

export async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const area = document.createElement("textarea");
    area.value = text;
    area.style.cssText = "position:fixed;opacity:0";
    (document.querySelector("dialog[open]") ?? document.body).append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    return done;
  }
}

document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-copy]");
  if (!button) return;
  if (await copy(button.dataset.copy)) toast("ok", gettext("Copied."));
  else toast("bad", gettext("The browser does not allow copying here."), gettext("Select the text and copy it."));
});
