// A Reveal.js plugin: stages of Kernel Theatre on slides.
//
//   <iframe data-stage="/im2col?embed=true&view=watch&step=5" title="…"></iframe>
//   <p class="fragment" data-step="12">…</p>      when it appears, the stage of its slide goes to step 12
//   The key G shows the answer of the question on the slide.
//   Reveal.initialize({ plugins: [RevealStage({ app: "http://localhost:8501" })] });
//
// That a stage turns the pages needs no plugin: its messages name Reveal's own methods. The plugin gives the
// frames their address, keeps their steps and takes the keyboard back. A plain script, no module: browsers
// load no modules from file://.
{
  // Where the app runs: ?app= of the deck's own address where that is a web address, else as usual.
  const appAddress = (search, usual) => {
    try {
      const url = new URL(new URLSearchParams(search).get("app"));
      return /^https?:$/.test(url.protocol) ? url.origin + url.pathname.replace(/\/+$/, "") : usual;
    } catch {
      return usual; // no address
    }
  };

  // What a stage says, or null: a frame may send anything.
  const heard = (data) => {
    try {
      const said = JSON.parse(data);
      return typeof said?.stage === "string" && Number.isInteger(said.step) ? said : null;
    } catch {
      return null;
    }
  };

  // The step of the last fragment shown that has one, in the order of the talk; null where none is.
  const stepShown = (fragments) =>
    fragments
      .filter(({ shown, step }) => shown && /^\d+$/.test(step))
      .sort((a, b) => a.index - b.index)
      .map(({ step }) => Number(step))
      .at(-1) ?? null;

  // The step that an address opens.
  const stepIn = (path) => Number(/[?&]step=(\d+)(?:&|$)/.exec(path)?.[1] ?? 0);

  const RevealStage = ({ app = "http://localhost:8501" } = {}) => ({
    id: "stage",
    init(deck) {
      const stages = (within) => [...(within?.querySelectorAll("iframe[data-stage]") ?? [])];
      const frames = stages(deck.getSlidesElement());
      const base = appAddress(location.search, app);
      for (const frame of frames) frame.dataset.src = base + frame.dataset.stage; // Reveal loads it in time

      const steps = new Map(); // where each frame is, or shall be as soon as it is there
      // To any origin: a step is no secret, and a frame that is not loaded yet has none.
      const send = (frame, message) => frame.contentWindow?.postMessage(message, "*");
      const goto = (frame, step) => {
        steps.set(frame, step);
        send(frame, { stage: "goto", step });
      };

      const follow = (slide) => {
        const fragments = [...slide.querySelectorAll(".fragment[data-step]")].map((fragment) => ({
          shown: fragment.classList.contains("visible"),
          index: Number(fragment.dataset.fragmentIndex),
          step: fragment.dataset.step,
        }));
        for (const frame of stages(slide)) goto(frame, stepShown(fragments) ?? stepIn(frame.dataset.stage));
      };
      const moved = ({ fragments }) =>
        fragments.some((fragment) => fragment.dataset.step) && follow(fragments[0].closest("section"));
      deck.on("fragmentshown", moved);
      deck.on("fragmenthidden", moved);

      window.addEventListener("message", ({ source, data }) => {
        const frame = frames.find((frame) => frame.contentWindow === source);
        const said = frame && heard(data);
        if (!said) return;
        frame.dataset.heard = ""; // the style shows it from now on
        if (said.stage !== "ready") steps.set(frame, said.step);
        else if (steps.has(frame) && steps.get(frame) !== said.step) goto(frame, steps.get(frame));
      });

      deck.addKeyBinding({ keyCode: 71, key: "G", description: "Show the answer" }, () => {
        for (const frame of stages(deck.getCurrentSlide())) send(frame, { stage: "answer" });
      });

      deck.on("slidechanged", ({ previousSlide }) => {
        for (const frame of stages(previousSlide)) send(frame, { stage: "pause" });
        window.focus(); // a stage that turned the page would keep the keyboard
      });
    },
  });

  Object.assign(globalThis, { RevealStage: Object.assign(RevealStage, { appAddress, heard, stepShown, stepIn }) });
}
