// What every page does: theme, rail, keyboard, palette, dialogs, toasts, times, live regions.
import "./pieces/confirm.js";
import "./pieces/copy.js";
import "./pieces/keyboard.js";
import "./pieces/palette.js";
import "./pieces/rail.js";
import "./pieces/times.js";
import "./pieces/toast.js";
import "./pieces/live.js";
