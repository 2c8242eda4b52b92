// One run on the page: its fleet above the curves, its tables below them.

import { Buttons } from "./control.js";
import * as panels from "./panels.js";
import { Topology } from "./topology.js";
import { element, sentenceFor } from "./words.js";

const LEGEND = [
  ["in", "in the model"], ["out", "not in it"], ["apart", "in another model"], ["head", "head"], ["dead", "dead"], ["frozen", "frozen"],
  ["cut", "cut off or silent"], ["back", "returned"], ["up", "report, mean"], ["down", "new model"],
];

export class RunView {
  constructor(run, say) {
    this.run = run;
    this.say = say;
    this.selected = null;
    this.seen = 0;
    this.topology = new Topology(run, (id) => { this.selected = id; this.told = ""; this.show(this.seconds, this.isLive); });
    this.buttons = run.hasControls ? new Buttons(say) : null;
    this.facts = element("div");
    this.device = element("div", { class: "device", "aria-live": "off" });
    this.deviceTitle = element("h4", {}, "No device chosen");
    this.deviceText = element("p", {}, "Choose a device in the picture.");
    this.device.append(this.deviceTitle, this.deviceText, ...(this.buttons ? [this.buttons.box] : []));
    const swatches = LEGEND.map(([name, words]) => element("li", {}, element("i", { class: `swatch ${name}`, "aria-hidden": "true" }), words));
    this.fleet = element("section", { class: "card fleet-card", "aria-label": `Fleet of ${run.name}` },
      element("h3", { class: `name run-${run.index % 6}` }, run.name),
      element("div", { class: "fleet-body" },
        element("div", {}, this.topology.box, element("ul", { class: "legend" }, ...swatches)),
        element("div", { class: "beside" }, this.facts, this.device)));
    this.buildDetails();
  }

  buildDetails() {
    const { run } = this;
    const part = (title, ...content) => element("div", { class: "part" }, element("h4", {}, title), ...content);
    [this.inside, this.failures, this.traffic] = [element("div"), element("div"), element("div")];
    this.log = element("ol");
    const log = element("div", { class: "log", tabindex: 0, role: "region", "aria-label": `What happened in ${run.name}` }, this.log);
    this.withRounds = element("input", { type: "checkbox", onchange: () => { this.told = ""; this.show(this.seconds, this.isLive); } });
    this.details = element("section", { class: "card", "aria-label": `Details of ${run.name}` },
      element("h3", { class: `name run-${run.index % 6}` }, run.name),
      element("div", { class: "parts" },
        part("Whose samples are in the model", this.inside),
        part("Failures", this.failures),
        part("Messages and bytes", this.traffic),
        part("What happened", element("label", {}, this.withRounds, " rounds and scores too"), log)));
  }

  /** Show a moment; messages fly when time moves on by itself. */
  show(seconds, isLive, isMoving = false) {
    Object.assign(this, { seconds, isLive });
    const count = this.run.countAt(seconds);
    const state = this.run.at(seconds);
    if (isMoving && count > this.seen) this.tell(this.run.ordered.slice(Math.max(this.seen, count - 600), count));
    this.seen = count;
    this.topology.show(state, this.selected);
    this.showDevice(state);
    const told = `${count} ${this.run.lines.length}`;
    if (told === this.told) return state;
    this.told = told;
    this.facts.replaceChildren(panels.facts(this.run, state));
    this.inside.replaceChildren(panels.inside(state));
    this.failures.replaceChildren(panels.failures(state));
    this.traffic.replaceChildren(panels.traffic(state));
    this.log.replaceChildren(...panels.log(this.run, count, this.withRounds.checked));
    return state;
  }

  /** What just came: messages fly, and the latest good or bad news is said aloud. */
  tell(news) {
    this.topology.fly(news);
    const said = news.map(sentenceFor).findLast((one) => one && ["good", "bad"].includes(one.mood));
    if (this.isLive && said) this.say(said.text);
  }

  showDevice(state) {
    const device = state.devices.get(this.selected);
    if (this.buttons) this.buttons.box.hidden = !device;
    if (!device) return;
    this.deviceTitle.textContent = `Device ${device.id}`;
    this.deviceText.textContent = panels.deviceWords(device);
    this.buttons?.show(device, this.isLive);
  }
}
