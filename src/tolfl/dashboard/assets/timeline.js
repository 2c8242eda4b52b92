// Where in time the page stands: at the end of a run that goes on, or anywhere in one that was recorded.

const SPEEDS = [0.25, 0.5, 1, 2, 5, 10, 25, 100, 1000];
const REPLAY_S = 25; // about as long as somebody watches

export class Player {
  constructor(onMove) {
    this.onMove = onMove;
    this.nowS = 0;
    this.endS = 0;
    this.isLive = false;
    this.isPlaying = false;
    this.canFollow = false;
    this.slider = document.getElementById("time");
    this.play = document.getElementById("play");
    this.live = document.getElementById("live");
    this.speed = document.getElementById("speed");
    for (const speed of SPEEDS) this.speed.append(new Option(`${speed} ×`, String(speed)));
    this.speed.value = "1";
    this.slider.addEventListener("input", () => this.moveTo(Number(this.slider.value) * this.endS));
    this.play.addEventListener("click", () => this.toggle());
    this.live.addEventListener("click", () => this.follow());
    this.frame = this.frame.bind(this);
  }

  /** The runs have become longer. */
  reach(endS) {
    this.endS = endS;
    if (this.isLive || (!this.isPlaying && !this.wasMoved)) this.nowS = endS;
    this.show();
  }

  chooseSpeed() {
    const wished = this.endS / REPLAY_S;
    this.speed.value = String(SPEEDS.findLast((speed) => speed <= wished) ?? SPEEDS[0]);
  }

  follow() {
    this.isLive = this.canFollow;
    this.isPlaying = this.wasMoved = false;
    this.nowS = this.endS;
    this.show();
    this.onMove(true);
  }

  stopFollowing() {
    this.canFollow = this.isLive = false;
    this.show();
    this.onMove(false);
  }

  moveTo(seconds) {
    this.isLive = false;
    this.wasMoved = true;
    this.nowS = Math.min(Math.max(0, seconds), this.endS);
    this.show();
    this.onMove(false);
  }

  toggle() {
    this.isLive = false;
    this.wasMoved = true;
    this.isPlaying = !this.isPlaying;
    if (this.isPlaying) {
      if (this.nowS >= this.endS) this.nowS = 0;
      this.beforeMs = performance.now();
      requestAnimationFrame(this.frame);
    }
    this.show();
  }

  frame(nowMs) {
    if (!this.isPlaying) return;
    const passedS = Math.max(0, nowMs - this.beforeMs) / 1000;
    this.beforeMs = nowMs;
    this.nowS = Math.min(this.endS, this.nowS + passedS * Number(this.speed.value));
    if (this.nowS >= this.endS) this.isPlaying = false;
    this.show();
    this.onMove(true);
    requestAnimationFrame(this.frame);
  }

  show() {
    this.slider.value = String(this.endS ? this.nowS / this.endS : 1);
    const words = `${this.nowS.toFixed(1)} of ${this.endS.toFixed(1)} s`;
    this.slider.setAttribute("aria-valuetext", words);
    document.getElementById("clock").textContent = words;
    this.play.textContent = this.isPlaying ? "Pause" : "Play";
    this.live.hidden = !this.canFollow;
    this.live.setAttribute("aria-pressed", String(this.isLive));
  }
}
