/* The script of kvproof's pages: the theme, copying of commands, and the explorer of counterexamples.

   An explorer is a section with the frames of a run as JSON (explorer_data.py). Tuples of frames.py are arrays here. Every
   text is put into the page as text, never as markup. */
(function () {
  "use strict";

  function make(tag, attributes) {
    var node = document.createElement(tag);
    Object.keys(attributes || {}).forEach(function (name) {
      var value = attributes[name];
      if (value === null || value === false || value === undefined) return;
      if (name === "text") node.textContent = value;
      else if (name === "hue") node.style.setProperty("--hue", value);
      else if (name === "part") node.style.setProperty("--part", value);
      else if (name === "click") node.addEventListener("click", value);
      else node.setAttribute(name, value === true ? "" : value);
    });
    Array.prototype.slice.call(arguments, 2).forEach(function (child) { if (child) node.append(child); });
    return node;
  }

  /* Theme, copying ------------------------------------------------------------------------------------- */

  function stored(value) {
    try {
      if (value) localStorage.setItem("kvproof-theme", value);
      return localStorage.getItem("kvproof-theme");
    } catch (error) { return null; }
  }

  function startTheme() {
    var button = document.getElementById("theme"), root = document.documentElement;
    var isDark = function () {
      var chosen = root.dataset.theme;
      return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    };
    var label = function () { button.textContent = isDark() ? "Light" : "Dark"; };
    if (!button) return;
    var before = stored();
    if (before === "dark" || before === "light") root.dataset.theme = before;
    button.hidden = false;
    button.addEventListener("click", function () {
      root.dataset.theme = isDark() ? "light" : "dark";
      stored(root.dataset.theme);
      label();
    });
    label();
  }

  function startCopying() {
    document.querySelectorAll(".copy").forEach(function (button) {
      button.hidden = false;
      button.addEventListener("click", function () {
        var code = button.parentNode.querySelector("code"), range = document.createRange();
        range.selectNodeContents(code);
        getSelection().removeAllRanges();
        getSelection().addRange(range);
        var done = function () { button.textContent = "Copied"; };
        if (navigator.clipboard) navigator.clipboard.writeText(code.textContent).then(done, function () {});
        else if (document.execCommand("copy")) done();
      });
    });
  }

  /* Explorer ----------------------------------------------------------------------------------------------------- */

  var HUE_STEP = 47, SHOWN_MAX = 16, COLUMNS_MAX = 120, PLAY_MILLISECONDS = 1100;
  var EXPECTS = "the specification expects", SHOWS = "the subject shows";
  var explorers = {}, latest = null;

  function Explorer(section) {
    var self = this, run = JSON.parse(section.querySelector("script").textContent);
    this.run = run;
    this.section = section;
    this.name = section.dataset.name;
    this.frames = run.frames;
    this.last = this.frames.length - 1;
    this.step = this.last;
    this.timer = null;
    var known = new Map();
    this.blocks = this.frames.map(function (frame) {
      known = new Map(known);
      frame.blocks.forEach(function (block) { known.set(block[0], block); });
      return known;
    });
    this.matter = this.whatMatters();
    this.isStore = this.frames.some(function (frame) { return frame.pools.some(function (pool) { return pool[0] === "store"; }); });
    this.isWritten = this.frames.some(function (frame) { return frame.blocks.some(function (block) { return block[4] > 0; }); });
    this.unfolded = false;
    this.build();
    section.hidden = false;
    this.show(this.last);
    section.addEventListener("keydown", function (event) { self.key(event); });
    section.addEventListener("focusin", function () { latest = self; });
    if (window.ResizeObserver) new ResizeObserver(function () { self.arrows(); }).observe(this.state);
  }

  Explorer.prototype.blockName = function (block) {
    var first = this.run.num_gpu_blocks;
    return block >= first && this.run.num_host_blocks ? "host " + (block - first) : String(block);
  };

  /* The blocks that a sequence holds at some step, or that the finding or a move names. */
  Explorer.prototype.whatMatters = function () {
    var found = new Set();
    this.frames.forEach(function (frame) {
      frame.lanes.forEach(function (lane) { lane[2].forEach(function (entry) { found.add(entry[0]); }); });
      frame.moves.forEach(function (move) { found.add(move[1]); found.add(move[2]); });
      frame.blocks.forEach(function (block) {
        if (block[6].length || block[7]) found.add(block[0]);
      });
    });
    return found;
  };

  /* What is counted of a pool: its evictable blocks, too, but only the free slots of a store. */
  Explorer.prototype.unused = function () { return this.isStore ? " free" : " can be allocated"; };

  Explorer.prototype.title = function (step) { return step ? "Step " + step + " of " + this.last : "Before step 1"; };

  Explorer.prototype.build = function () {
    var self = this, go = function (step) { return function () { self.stop(); self.show(step(), true); }; };
    var button = function (label, text, step) {
      return make("button", { type: "button", title: label, text: text, click: go(step) });
    };
    this.range = make("input", { type: "range", min: 0, max: this.last, "aria-label": "Step" });
    this.range.addEventListener("input", function () { self.stop(); self.show(Number(self.range.value), true); });
    this.where = make("output", {});
    this.play = make("button", { type: "button", text: "Play", "aria-pressed": "false", click: function () { self.toggle(); } });
    this.link = make("a", { text: "Link" });
    this.section.append(make("div", { class: "bar", role: "group", "aria-label": "Choose a step" },
      button("First step", "First", function () { return 0; }),
      button("One step back", "Back", function () { return self.step - 1; }),
      this.play,
      button("One step on", "Next", function () { return self.step + 1; }),
      button("Last step", "Last", function () { return self.last; }),
      this.range, this.where, this.link));
    this.text = make("p", { class: "now-text", "aria-live": "polite" });
    this.table = make("div", { class: "scroll lives", tabindex: 0, role: "region", "aria-label": "Tables of every sequence at every step" });
    this.section.append(this.text, this.table);
    this.state = make("div", { class: "state" });
    this.steps = make("ol", { class: "steps", "aria-label": "Steps" });
    this.frames.forEach(function (frame, step) {
      var call = step ? parted(frame.step)[0] : "open the subject";
      self.steps.append(make("li", {}, make("button", {
        type: "button", class: step === self.last && self.run.is_refuted ? "broken" : "",
        click: go(function () { return step; }) }, make("span", { text: step || "" }), call)));
    });
    this.section.append(make("div", { class: "panes" }, this.steps, this.state));
  };

  /* A step as text: the call of the engine, and what the subject did. */
  function parted(text) {
    var found = /^(.*?)\s{3,}([^]*)$/.exec(text);
    return found ? [found[1], found[2]] : [text.trim(), ""];
  }

  /* One row for each sequence or request, one column for each step; of a long run the steps around this one. */
  Explorer.prototype.lives = function (step) {
    if (step >= this.from && step < this.to) return;
    this.from = Math.max(0, Math.min(step - COLUMNS_MAX / 2, this.last + 1 - COLUMNS_MAX));
    this.to = Math.min(this.last + 1, this.from + COLUMNS_MAX);
    var self = this, from = this.from, names = [], head = make("tr", {}, make("th", { scope: "col", text: "" }));
    var shown = this.frames.slice(from, this.to), isPart = shown.length <= this.last;
    shown.forEach(function (frame, at) {
      frame.lanes.forEach(function (lane) { if (names.indexOf(lane[0]) < 0) names.push(lane[0]); });
      head.append(make("th", { scope: "col", "data-step": from + at }, self.jump(from + at, from + at || "open")));
    });
    var textOf = function (lane) {
      var blocks = lane ? lane[2].map(function (entry) { return entry[0] === null ? "·" : self.blockName(entry[0]); }) : [];
      return lane ? blocks.join(" ") || lane[1] : "";
    };
    var laneOf = function (name, at) {
      var frame = self.frames[at];
      return frame && frame.lanes.find(function (one) { return one[0] === name; });
    };
    var rows = names.map(function (name) {
      var before = textOf(laneOf(name, from - 1)), row = make("tr", {}, make("th", { scope: "row", text: name }));
      shown.forEach(function (frame, at) {
        var lane = laneOf(name, from + at), text = textOf(lane), wrong = lane && differs(lane);
        var kind = !lane ? "none" : wrong ? "differs" : lane[2].length ? "running" : /^\w+/.exec(lane[1] + "_")[0];
        row.append(make("td", { "data-step": from + at, class: kind + (text !== before ? " changed" : "") },
          lane ? self.jump(from + at, (wrong ? "≠ " : "") + text, name + ", " + lane[1] + ", step " + (from + at)) : null));
        before = text;
      });
      return row;
    });
    var what = (this.isStore ? "Slots" : "Blocks") + " after each step" + (isPart ? ", " + from + " to " + (this.to - 1) + " of " + this.last : "");
    var body = make("tbody", {});
    body.append.apply(body, rows);
    this.table.replaceChildren(make("table", {}, make("caption", {}, make("span", { text: what })), make("thead", {}, head), body));
  };

  Explorer.prototype.jump = function (step, text, label) {
    var self = this;
    return make("button", { type: "button", tabindex: -1, text: text, title: label || null, click: function () { self.stop(); self.show(step, true); } });
  };

  function differs(lane) { return lane[2].some(function (entry) { return entry[3] || entry[4]; }); }

  Explorer.prototype.show = function (step, byUser) {
    step = Math.max(0, Math.min(this.last, step));
    this.step = step;
    var frame = this.frames[step], words = parted(frame.step), broken = step === this.last && this.run.is_refuted;
    this.range.value = step;
    this.range.setAttribute("aria-valuetext", this.title(step));
    this.where.textContent = this.title(step);
    this.link.href = "#" + this.name + "-step-" + step;
    this.text.className = "now-text" + (broken ? " broken" : "");
    this.text.replaceChildren(make("b", { text: step ? step + "  " + words[0] : "The subject is open, and nothing is held" }),
      (broken ? "✗ " + this.run.outcome : words[1] ? "→ " + words[1] : ""));
    Array.prototype.forEach.call(this.steps.children, function (item, at) {
      if (at === step) item.firstChild.setAttribute("aria-current", "step");
      else item.firstChild.removeAttribute("aria-current");
    });
    this.lives(step);
    this.section.querySelectorAll("[data-step]").forEach(function (cell) {
      cell.classList.toggle("now", Number(cell.dataset.step) === step);
    });
    within(this.steps, this.steps.children[step]);
    within(this.table, this.table.querySelectorAll("thead th")[step - this.from + 1]);
    this.draw(frame, broken);
    if (byUser) {
      latest = this;
      try { history.replaceState(null, "", this.link.getAttribute("href")); } catch (error) { /* a page without an address */ }
    }
  };

  /* Scroll the box, not the page, so that the item is seen. */
  function within(box, item) {
    var outer = box.getBoundingClientRect(), inner = item.getBoundingClientRect();
    if (inner.top < outer.top) box.scrollTop -= outer.top - inner.top;
    if (inner.bottom > outer.bottom) box.scrollTop += inner.bottom - outer.bottom;
    if (inner.left < outer.left + 90) box.scrollLeft -= outer.left + 90 - inner.left;
    if (inner.right > outer.right) box.scrollLeft += inner.right - outer.right;
  }

  Explorer.prototype.draw = function (frame, broken) {
    var self = this, parts = [];
    if (broken) parts.push.apply(parts, this.differences(frame));
    if (frame.lanes.length) parts.push(make("h4", { text: "Tables" }));
    frame.lanes.forEach(function (lane) { parts.push(self.lane(lane)); });
    this.pools = make("div", { class: "pools" });
    frame.pools.forEach(function (pool, at) { self.pool(frame, pool, at); });
    parts.push(this.pools);
    if (frame.moves.length) {
      parts.push(make("h4", { text: "Moved in this step" }), list("choices", frame.moves.map(function (move) {
        return make("li", { text: move[0] + ": " + self.end(move[1]) + " → " + self.end(move[2]) + (move[3] ? " (" + move[3] + ")" : "") });
      })));
    }
    if (frame.choices.length) {
      var what = make("details", {}, make("summary", { text: this.step === this.last ? "What could be done next" : "What could it have done instead?" }),
        list("choices", frame.choices.map(function (choice) {
          return make("li", { class: choice[2] ? "next" : "", text: choice[0] + (choice[1] ? ": " + choice[1] : "") + (choice[2] ? " (came next)" : "") });
        })));
      what.open = this.choicesOpen === true;
      what.addEventListener("toggle", function () { self.choicesOpen = what.open; });
      parts.push(what);
    }
    var hadFocus = this.state.contains(document.activeElement);
    this.state.replaceChildren.apply(this.state, parts);
    if (hadFocus) (this.state.querySelector("summary") || this.range).focus({ preventScroll: true });
    this.arrows();
  };

  function list(name, items) {
    var found = make("ul", { class: name });
    found.append.apply(found, items);
    return found;
  }

  Explorer.prototype.end = function (block) { return block === null ? "the device" : "block " + this.blockName(block); };

  /* What the specification expects beside what the subject shows, where they differ. */
  Explorer.prototype.differences = function (frame) {
    var self = this, rows = [], subject = /^the (subject|store): /;
    var add = function (what, ours, theirs) {
      rows.push(make("tr", {}, make("th", { scope: "row", text: what }), make("td", { text: ours, "data-label": EXPECTS }), make("td", { class: "wrong", text: theirs, "data-label": SHOWS })));
    };
    frame.lanes.forEach(function (lane) {
      lane[2].forEach(function (entry, at) {
        if (entry[3]) add(lane[0] + ", entry " + at, entry[0] === null ? "no block" : "block " + self.blockName(entry[0]), entry[3]);
        if (entry[4]) add(lane[0] + ", entry " + at, "block " + self.blockName(entry[0]) + " holds its tokens", "it holds other KV");
      });
    });
    frame.blocks.forEach(function (block) {
      block[6].forEach(function (text) {
        var ours = /refcount/.test(text) ? "refcount " + block[1] : block[2];
        add("block " + self.blockName(block[0]), ours, text.replace(subject, ""));
      });
    });
    frame.pools.forEach(function (pool) {
      if (pool[2] !== null) add(pool[0], pool[1] + self.unused(), pool[2] + self.unused());
    });
    if (!rows.length) return [make("p", { class: "faint", text: "No cell differs: the finding is about the call itself." })];
    var body = make("tbody", {});
    body.append.apply(body, rows);
    return [make("h4", { text: "Where the subject differs" }), make("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Differences" },
      make("table", { class: "differences" }, make("thead", {}, make("tr", {}, make("th", { scope: "col", text: "" }),
        make("th", { scope: "col", text: EXPECTS }), make("th", { scope: "col", text: SHOWS }))), body))];
  };

  Explorer.prototype.lane = function (lane) {
    var self = this, before = this.step ? this.frames[this.step - 1].lanes.find(function (one) { return one[0] === lane[0]; }) : null;
    var cells = lane[2].map(function (entry, at) {
      var old = before && before[2][at], wrong = entry[3] || entry[4];
      var isNew = self.step && (!old || old[0] !== entry[0]);
      if (entry[0] === null) {
        return make("li", { class: "cell left" + (wrong ? " differs" : "") }, make("b", { text: "·" }),
          make("small", { text: entry[3] ? "" : "left the window" }), entry[3] ? make("span", { class: "bad", text: "✗ subject: " + entry[3] }) : null);
      }
      return make("li", { class: "cell used" + (wrong ? " differs" : isNew ? " changed" : ""), hue: entry[0] * HUE_STEP % 360 },
        make("b", { text: self.blockName(entry[0]) }), make("small", { text: [entry[1] ? entry[2] + " of " + entry[1] + (self.isStore ? " written" : " computed") : "", isNew ? "new" : ""].filter(Boolean).join(", ") }),
        entry[3] ? make("span", { class: "bad", text: "✗ subject: " + entry[3] }) : null,
        entry[4] ? make("span", { class: "bad", text: "✗ wrong KV" }) : null);
    });
    return make("div", { class: "lane" }, make("p", { text: lane[0] }, make("small", { text: lane[1] })),
      cells.length ? list("cells", cells) : make("p", { class: "faint", text: "no block" }));
  };

  Explorer.prototype.pool = function (frame, pool, at) {
    var self = this, run = this.run, known = this.blocks[this.step];
    var first = at ? run.num_gpu_blocks : 0, end = at ? first + run.num_host_blocks : run.num_gpu_blocks;
    if (first >= end) return;
    var ids = [], hidden = 0;
    for (var id = first; id < end; id++) {
      if (this.unfolded || end - first <= SHOWN_MAX || this.matter.has(id)) ids.push(id);
      else hidden++;
    }
    var cells = ids.map(function (id) { return self.block(frame, known.get(id) || [id, 0, "free", false, 0, 0, [], false]); });
    var text = pool[1] + this.unused() + (pool[2] === null ? "" : "; the subject reports " + pool[2]);
    if (hidden && hidden + ids.length < 5000) {
      cells.push(make("li", {}, make("button", { type: "button", text: "+ " + hidden + " blocks that no sequence here holds", click: function () { self.unfolded = true; self.show(self.step); } })));
    } else if (hidden) cells.push(make("li", { class: "faint", text: "and " + hidden.toLocaleString() + " blocks that no sequence here holds" }));
    if (frame.moves.some(function (move) { return move[1] === null || move[2] === null; })) {
      cells.push(make("li", { class: "cell", "data-block": "null" }, make("b", { text: "device" }), make("small", { text: "the other end" })));
    }
    this.pools.append(make("h4", {}, (pool[0] === "store" ? "Slots of the " : "Blocks of the ") + pool[0], make("small", { text: text, class: pool[2] === null ? "" : "word refuted" })), list("cells", cells));
  };

  Explorer.prototype.block = function (frame, block) {
    var self = this, number = block[0], isWrong = block[6].length > 0, isFree = block[2] === "free";
    var holders = frame.lanes.filter(function (lane) {
      return lane[2].some(function (entry) { return entry[0] === number; });
    }).map(function (lane) { return lane[0]; });
    var small = function (text) { return text ? make("small", { text: text }) : null; };
    return make("li", { class: "cell " + block[2] + (isWrong ? " differs" : "") + (block[7] ? " named" : ""), "data-block": number, hue: number * HUE_STEP % 360 },
      make("b", { text: self.blockName(number) }), small(block[2] + (block[1] ? ", refcount " + block[1] : "") + (block[3] ? ", cached" : "")),
      !block[4] && (isFree || !self.isWritten) ? null : small(block[4] + " of " + self.run.block_size + " written"),
      block[4] ? make("span", { class: "gauge", part: 100 * block[4] / self.run.block_size + "%" }) : null,
      small(holders.slice(0, 4).join(", ") + (holders.length > 4 ? " and " + (holders.length - 4) + " more" : "")),
      small(block[5] ? "in flight: " + block[5] : ""),
      isWrong ? make("span", { class: "bad", text: "✗ " + block[6].join("; ") }) : null);
  };

  /* An arrow from block to block for each move whose ends are shown. */
  Explorer.prototype.arrows = function () {
    var old = this.pools.querySelector("svg"), moves = this.frames[this.step].moves, pools = this.pools;
    if (old) old.remove();
    if (!moves.length) return;
    var space = "http://www.w3.org/2000/svg", svg = document.createElementNS(space, "svg"), box = pools.getBoundingClientRect();
    svg.setAttribute("aria-hidden", "true");
    var draw = function (parent, tag, attributes) {
      var node = document.createElementNS(space, tag);
      Object.keys(attributes).forEach(function (name) { node.setAttribute(name, attributes[name]); });
      parent.append(node);
      return node;
    };
    var head = draw(svg, "marker", { id: this.name + "-head", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 5, markerHeight: 5, orient: "auto" });
    draw(head, "path", { d: "M0 0 8 4 0 8z" });
    var self = this;
    moves.forEach(function (move) {
      var ends = [move[1], move[2]].map(function (block) { return pools.querySelector('[data-block="' + Number(block === null ? NaN : block) + '"]') || (block === null ? pools.querySelector('[data-block="null"]') : null); });
      if (!ends[0] || !ends[1]) return;
      var one = ends[0].getBoundingClientRect(), two = ends[1].getBoundingClientRect();
      var right = two.left >= one.right, left = two.right <= one.left;
      var x1 = (right ? one.right : left ? one.left : one.left + one.width / 2) - box.left, y1 = (right || left ? one.top + one.height / 2 : two.top > one.top ? one.bottom : one.top) - box.top;
      var x2 = (right ? two.left : left ? two.right : two.left + two.width / 2) - box.left, y2 = (right || left ? two.top + two.height / 2 : two.top > one.top ? two.top : two.bottom) - box.top;
      var bend = right || left ? Math.min(30, Math.abs(x2 - x1) / 3) : 0;
      draw(svg, "path", { d: "M" + x1 + " " + y1 + " Q" + (x1 + x2) / 2 + " " + ((y1 + y2) / 2 - bend) + " " + x2 + " " + y2, "marker-end": "url(#" + self.name + "-head)" });
    });
    pools.append(svg);
  };

  Explorer.prototype.toggle = function () {
    var self = this;
    if (this.timer) return this.stop();
    this.play.textContent = "Pause";
    this.play.setAttribute("aria-pressed", "true");
    this.show(this.step === this.last ? 0 : this.step + 1, true);
    this.timer = setInterval(function () {
      if (self.step >= self.last) self.stop();
      else self.show(self.step + 1, true);
    }, PLAY_MILLISECONDS);
  };

  Explorer.prototype.stop = function () {
    clearInterval(this.timer);
    this.timer = null;
    this.play.textContent = "Play";
    this.play.setAttribute("aria-pressed", "false");
  };

  Explorer.prototype.key = function (event) {
    var steps = { ArrowLeft: this.step - 1, ArrowRight: this.step + 1, Home: 0, End: this.last };
    if (!(event.key in steps) || event.target === this.range || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    event.stopPropagation();
    this.stop();
    this.show(steps[event.key], true);
  };

  document.addEventListener("keydown", function (event) {
    var isOnPage = event.target === document.body || event.target === document.documentElement;
    if (isOnPage && latest && (event.key === "ArrowLeft" || event.key === "ArrowRight")) latest.key(event);
  });

  /* An explorer is built when its article comes near the window, or a link names one of its steps. */
  function explorerOf(section) {
    var name = section.dataset.name;
    if (!explorers[name]) explorers[name] = new Explorer(section);
    return explorers[name];
  }

  function follow() {
    var named = /^#(.+)-step-(\d+)$/.exec(location.hash);
    var section = named && document.getElementById(named[1] + "-run");
    if (!section || !section.classList.contains("explorer")) return;
    explorerOf(section).show(Number(named[2]), true);
    section.scrollIntoView({ block: "start" });
  }

  function startExplorers() {
    var sections = Array.prototype.slice.call(document.querySelectorAll(".explorer"));
    if (sections.length) latest = explorerOf(sections.shift());
    if (window.IntersectionObserver) {
      var watch = new IntersectionObserver(function (seen) {
        seen.forEach(function (one) {
          if (!one.isIntersecting) return;
          watch.unobserve(one.target);
          explorerOf(one.target.querySelector(".explorer"));
        });
      }, { rootMargin: "600px" });
      sections.forEach(function (section) { watch.observe(section.parentNode); });
    } else sections.forEach(explorerOf);
    addEventListener("beforeprint", function () { sections.forEach(explorerOf); });
    addEventListener("hashchange", follow);
    follow();
  }

  startTheme();
  startCopying();
  startExplorers();
  addEventListener("beforeprint", function () {  // after the explorers are built, which have details of their own
    document.querySelectorAll("details").forEach(function (one) { one.open = true; });
  });
})();
