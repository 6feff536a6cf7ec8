// What is looked at inside the page. Each function returns sentences, none when all is well.
(() => {
  const all = (selector) => [...document.querySelectorAll(selector)];
  const visible = (element) => element.checkVisibility({ visibilityProperty: true });

  function named(element) {
    const attribute = element.id ? `#${element.id}` : element.getAttribute("class") ? `.${element.classList[0]}` : "";
    const words = (element.getAttribute("alt") || element.textContent || "").trim().replace(/\s+/g, " ").slice(0, 40);
    return `<${element.localName}${attribute}>${words ? ` "${words}"` : ""}`;
  }

  // Any CSS colour as [red, green, blue, alpha], each 0 to 1.
  const pen = Object.assign(document.createElement("canvas"), { width: 1, height: 1 })
    .getContext("2d", { willReadFrequently: true });
  function colour(css) {
    pen.clearRect(0, 0, 1, 1);
    pen.fillStyle = css;
    pen.fillRect(0, 0, 1, 1);
    return [...pen.getImageData(0, 0, 1, 1).data].map((value) => value / 255);
  }

  function light([red, green, blue]) {
    const linear = (c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
    return 0.2126 * linear(red) + 0.7152 * linear(green) + 0.0722 * linear(blue);
  }

  function behind(element) {
    for (let one = element; one; one = one.parentElement) {
      const found = colour(getComputedStyle(one).backgroundColor);
      if (found[3] > 0.99) return found;
    }
    const canvas = document.documentElement.appendChild(document.createElement("i"));
    canvas.style.backgroundColor = "Canvas"; // dark or light as the page's color-scheme says
    const found = colour(getComputedStyle(canvas).backgroundColor);
    canvas.remove();
    return found;
  }

  const scrolls = (element) => {
    const { overflowX, overflowY } = getComputedStyle(element);
    const may = (overflow) => overflow === "auto" || overflow === "scroll";
    return (may(overflowX) && element.scrollWidth > element.clientWidth + 1) ||
      (may(overflowY) && element.scrollHeight > element.clientHeight + 1);
  };

  // Text nodes that can be seen, each with the element that holds it.
  function* texts() {
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
      const [text, holder] = [walker.currentNode, walker.currentNode.parentElement];
      if (text.data.trim() && visible(holder) && holder.getClientRects().length) yield [text, holder];
    }
  }

  // Boxes of text have room above and below the letters; that may be shared.
  function meet(one, other) {
    const shared = Math.min(one.bottom, other.bottom) - Math.max(one.top, other.top);
    return Math.min(one.right, other.right) - Math.max(one.left, other.left) > 1 &&
      shared > 0.35 * Math.min(one.height, other.height);
  }

  return {
    wideContent(width) {
      const root = document.scrollingElement;
      if (root.clientWidth !== width) return [`laid out ${root.clientWidth} px wide on ${width} px: no viewport meta?`];
      if (root.scrollWidth <= width) return [];
      const contained = (element) => {
        for (let one = element.parentElement; one && one !== root; one = one.parentElement)
          if (getComputedStyle(one).overflowX !== "visible" && one !== document.body) return true;
        return false;
      };
      const wide = all("body *").filter((e) => e.getBoundingClientRect().right > width + 1 && !contained(e));
      return [`scrolls sideways, ${root.scrollWidth} px of ${width}: ${wide.slice(0, 4).map(named).join(", ")}`];
    },

    smallText(least) {
      const found = new Set();
      for (const [, holder] of texts()) {
        const scale = holder instanceof SVGGraphicsElement ? Math.abs(holder.getScreenCTM().d) : 1;
        const size = parseFloat(getComputedStyle(holder).fontSize) * scale;
        if (size < least) found.add(`text of ${size.toFixed(1)} px, under ${least}: ${named(holder)}`);
      }
      return [...found].slice(0, 8);
    },

    // A column too narrow for its words; names and addresses longer than 14 letters may break.
    brokenWords() {
      const found = new Set();
      const range = document.createRange();
      for (const [text, holder] of texts()) {
        for (const { 0: word, index } of text.data.matchAll(/[\p{L}\p{N}_.]+/gu)) {
          if (word.length > 14) continue;
          range.setStart(text, index);
          range.setEnd(text, index + word.length);
          const lines = new Set([...range.getClientRects()].map((box) => Math.round(box.bottom)));
          if (lines.size > 1) found.add(`"${word}" is broken over ${lines.size} lines in ${named(holder)}`);
        }
      }
      return [...found].slice(0, 8);
    },

    overlappingSvgText() {
      const found = [];
      for (const drawing of all("svg").filter(visible)) {
        const boxes = [...drawing.querySelectorAll("text")].map((text) => [text, text.getBoundingClientRect()]);
        boxes.forEach(([text, box], i) => boxes.slice(i + 1).forEach(([other, its]) => {
          if (meet(box, its)) found.push(`${named(text)} lies over ${named(other)}`);
        }));
      }
      return found.slice(0, 8);
    },

    // axe does not look at the fill of SVG text.
    faintSvgText() {
      const found = [];
      for (const text of all("svg text").filter(visible)) {
        const back = behind(text);
        const [red, green, blue, alpha] = colour(getComputedStyle(text).fill);
        const seen = [red, green, blue].map((c, i) => c * alpha + back[i] * (1 - alpha));
        const [high, low] = [light(seen), light(back)].sort((a, b) => b - a);
        const contrast = (high + 0.05) / (low + 0.05);
        if (contrast < 4.5) found.push(`contrast ${contrast.toFixed(2)} of SVG text ${named(text)}`);
      }
      return found.slice(0, 8);
    },

    wrongScheme(dark) {
      const level = light(behind(document.body));
      if (dark ? level < 0.2 : level > 0.7) return [];
      return [`a background of luminance ${level.toFixed(2)} where the reader asked for ${dark ? "dark" : "light"}`];
    },

    // Hints fetch or connect without a request that could be counted.
    outsideHints() {
      return all("link[href], iframe, frame, object, embed, meta[http-equiv=refresh]")
        .filter((e) => !(e.getAttribute("href") || "").startsWith("data:"))
        .map((e) => `may fetch from elsewhere: ${e.outerHTML.slice(0, 120)}`);
    },

    async brokenMedia() {
      const found = [];
      for (const picture of all("img, svg image")) {
        const probe = new Image();
        probe.src = picture.currentSrc || picture.src?.baseVal || picture.src || picture.href.baseVal;
        await probe.decode().catch(() => {});
        if (!probe.naturalWidth) found.push(`does not decode: ${named(picture)}`);
      }
      for (const sound of all("audio, video")) {
        const ended = new Promise((done) => {
          for (const event of ["loadedmetadata", "error"]) sound.addEventListener(event, done, { once: true });
          for (const source of sound.querySelectorAll("source")) source.addEventListener("error", done, { once: true });
        });
        sound.preload = "metadata";
        sound.load();
        await ended;
        if (!(sound.duration > 0)) found.push(`does not play: ${named(sound)}`);
      }
      return found;
    },

    openDetails() {
      return all("details").map((details) => { details.open = true; return named(details); });
    },

    async axe() {
      const { violations } = await axe.run(document, {
        resultTypes: ["violations"], rules: { "target-size": { enabled: true } },
      });
      return violations.flatMap(({ id, impact, nodes }) => nodes.slice(0, 4).map((node) =>
        `axe ${id} (${impact}): ${node.target.join(" ")}: ` +
        node.failureSummary.split("\n").slice(1).map((line) => line.trim()).join(" ").slice(0, 240)));
    },

    // What a person without a mouse must reach.
    keyed() {
      const operable = "a[href], button, input, select, textarea, summary, audio[controls], [tabindex='0']";
      return all("body *").filter((e) => visible(e) && (e.matches(operable) || scrolls(e)));
    },

    focus() {
      const element = document.activeElement;
      if (!element || element === document.body) return null;
      this.reached ??= new Set();
      const before = this.reached.has(element) && this.last !== element;
      this.reached.add(element);
      this.last = element;
      const { outlineStyle, outlineWidth, boxShadow } = getComputedStyle(element);
      // Sound and film show the focus on the control inside that has it.
      const shown = element.matches("audio, video") || (outlineStyle !== "none" && outlineWidth !== "0px") || boxShadow !== "none";
      const closed = element.localName === "summary" && !element.parentElement.open;
      return { name: named(element), before, shown, closed };
    },

    unreached() {
      const reached = this.reached ?? new Set();
      return this.keyed().filter((element) => !reached.has(element)).map((e) => `Tab does not reach ${named(e)}`);
    },
  };
})()
