/* Pages work without this script. With it, a form or a link that has data-live="#id" changes that section alone: the
 * script fetches the same address that the browser would open, and puts the section of the answer in place. */
"use strict";
(() => {
  let request = null; // the AbortController of the fetch under way

  /* Fetches the page at this address and replaces the section. Keeps the focus, the place and the selection of a field
   * in the section that had them. */
  async function show(url, selector, keepsHistory) {
    const section = document.querySelector(selector);
    if (!section) {
      location.assign(url);
      return;
    }
    if (request) request.abort();
    const mine = request = new AbortController();
    section.setAttribute("aria-busy", "true");
    try {
      const answer = await fetch(url, { headers: { Accept: "text/html" }, signal: mine.signal });
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      const fresh = page.querySelector(selector);
      if (!fresh) {
        location.assign(url);
        return;
      }
      const old = document.querySelector(selector);
      const focused = old.contains(document.activeElement) ? document.activeElement : null;
      const mark = focused && (focused.id ? "#" + CSS.escape(focused.id)
        : focused.dataset.sort ? `[data-sort="${CSS.escape(focused.dataset.sort)}"]` : null);
      old.replaceWith(fresh);
      showButtons(fresh);
      const again = mark && fresh.querySelector(mark);
      if (again) again.focus({ preventScroll: true });
      if (keepsHistory) history.replaceState(null, "", url);
      const count = fresh.dataset.matched;
      if (count !== undefined) say(`${count} shown`);
    } catch (error) {
      if (error.name !== "AbortError") say("the server does not answer");
    } finally {
      if (request === mine) {
        request = null;
        const now = document.querySelector(selector);
        if (now) now.removeAttribute("aria-busy");
      }
    }
  }

  function say(text) {
    const line = document.querySelector(".live");
    if (line) {
      line.textContent = text;
      clearTimeout(say.timer);
      say.timer = setTimeout(() => { line.textContent = ""; }, 4000);
    }
  }

  /* Returns the address that the form would open: fields that are empty are left out. */
  function addressOf(form) {
    const url = new URL(form.getAttribute("action") || location.pathname, location.href);
    const fields = new URLSearchParams();
    for (const [name, value] of new FormData(form)) if (value !== "") fields.append(name, value);
    url.search = fields.toString();
    return url.href;
  }

  let typing = 0;
  function submitLive(event) {
    const form = event.target.closest("form[data-live]");
    if (!form) return;
    if (event.type === "submit") event.preventDefault();
    clearTimeout(typing);
    const wait = event.type === "input" ? 200 : 0;
    typing = setTimeout(() => {
      const url = addressOf(form); // a field that loses the focus reports the change that it has reported before
      if (event.type === "submit" || url !== location.href) show(url, form.dataset.live, true);
    }, wait);
  }
  for (const type of ["submit", "input", "change"]) document.addEventListener(type, submitLive);

  document.addEventListener("click", (event) => {
    const copy = event.target.closest("button[data-copy]");
    if (copy) {
      const text = document.querySelector(`pre[data-command="${CSS.escape(copy.dataset.copy)}"]`);
      copyText(text ? text.textContent : "");
      return;
    }
    const link = event.target.closest("a[data-live]");
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey || event.button !== 0) return;
    event.preventDefault();
    show(link.href, link.dataset.live, true);
  });

  /* Copies by the clipboard's interface, which pages have on https and on localhost alone; else by a selection. */
  async function copyText(text) {
    try {
      await navigator.clipboard.writeText(text);
      say("copied");
    } catch {
      const field = document.createElement("textarea");
      field.value = text;
      field.setAttribute("readonly", "");
      document.body.append(field);
      field.select();
      say(document.execCommand("copy") ? "copied" : "select the text to copy it");
      field.remove();
    }
  }

  /* Shows the buttons that copy: without the script there is nothing to press. */
  function showButtons(section) {
    for (const button of section.querySelectorAll("button[data-copy]")) button.hidden = false;
  }
  showButtons(document);

  // A section with data-every is fetched again after so many milliseconds, while the page is seen.
  for (const section of document.querySelectorAll("[id][data-every]")) {
    const selector = "#" + CSS.escape(section.id);
    setInterval(() => {
      if (!document.hidden && !request) show(location.href, selector, false);
    }, Number(section.dataset.every));
  }
})();
