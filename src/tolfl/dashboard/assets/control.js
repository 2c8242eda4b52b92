// The buttons that strike a device of a fleet on this machine. Without the token of the terminal they stay away.

import { element } from "./words.js";

const KEY = "tolfl-token";
const ACTIONS = [
  ["kill", "Kill", (device, isUp) => isUp],
  ["freeze", "Freeze", (device, isUp) => isUp && device.status !== "frozen"],
  ["thaw", "Thaw", (device) => device.status === "frozen"],
  ["cut", "Cut off", (device, isUp) => isUp && !["frozen", "cut"].includes(device.status)],
  ["heal", "End cut", (device) => device.status === "cut"],
  ["revive", "Revive", (device, isUp) => !isUp],
];

/** Take the token out of the address, so that it is neither bookmarked nor seen. */
export function takeToken() {
  const given = new URLSearchParams(location.hash.slice(1)).get("token");
  if (given) {
    sessionStorage.setItem(KEY, given);
    history.replaceState(null, "", location.pathname + location.search);
  }
  return sessionStorage.getItem(KEY);
}

export class Buttons {
  constructor(say) {
    this.say = say;
    this.token = takeToken();
    this.box = element("div", { class: "actions" });
    this.buttons = ACTIONS.map(([action, words]) => element("button", { type: "button", "data-action": action, onclick: () => this.send(action) }, words));
    this.hint = element("p", { class: "note" });
    this.box.append(...this.buttons, this.hint);
  }

  show(device, isLive) {
    this.device = device;
    const isUp = !["dead", "left"].includes(device.status);
    this.hint.textContent = !this.token ? "To kill devices here, open the address with the token that the terminal shows."
      : isLive ? "" : "Go to Live to strike a device.";
    ACTIONS.forEach(([, , isMeant], i) => {
      this.buttons[i].hidden = !this.token || !isMeant(device, isUp);
      this.buttons[i].disabled = !isLive || this.isBusy;
    });
  }

  async send(action) {
    this.isBusy = true;
    const device = this.device.id;
    this.say(`${action} device ${device} …`);
    try {
      const answer = await fetch("/api/command", {
        method: "POST",
        headers: { "Content-Type": "application/json", "X-Tolfl-Token": this.token },
        body: JSON.stringify({ action, device }),
      });
      const told = await answer.json();
      this.say(answer.ok ? `device ${device}: ${action} done` : told.error);
    } catch {
      this.say("the run's program does not answer");
    }
    this.isBusy = false;
  }
}
