// Markdown to safe HTML. Above: the views that show a block. Below: marked and DOMPurify. Whatever an agent or a file says,
// only a small set of elements gets through: no scripts, no styles, no forms, nothing that loads from elsewhere.

import DOMPurify from "dompurify";
import { marked } from "marked";

marked.use({ gfm: true, breaks: false });

const ALLOWED = {
  ALLOWED_TAGS: ["p", "br", "strong", "em", "del", "code", "pre", "blockquote", "ul", "ol", "li", "h1", "h2", "h3", "h4", "h5", "h6", "hr", "a", "table", "thead", "tbody", "tr", "th", "td", "input"],
  ALLOWED_ATTR: ["href", "title", "start", "type", "checked", "disabled", "align"],
  ALLOWED_URI_REGEXP: /^(?:https?:|mailto:|#)/i,
  // Not addresses, so not to be judged as such: else a list that begins at 2 would begin at 1.
  ADD_URI_SAFE_ATTR: ["start", "align", "type"],
  ALLOW_DATA_ATTR: false,
  ALLOW_ARIA_ATTR: false,
};

DOMPurify.addHook("afterSanitizeAttributes", (node) => {
  if (node.tagName === "A") {
    node.setAttribute("target", "_blank");
    node.setAttribute("rel", "noopener noreferrer nofollow");
  }
  // Bullets stand where the words begin.
  if (node.tagName === "UL" || node.tagName === "OL") node.setAttribute("dir", "auto");
  if (node.tagName === "INPUT") {
    node.setAttribute("type", "checkbox");
    node.setAttribute("disabled", "");
    node.setAttribute("aria-label", node.hasAttribute("checked") ? "done" : "not done");
  }
});

// A picture is shown as a link to it: the page loads nothing from elsewhere. HTML inside of markdown is shown as the text
// that it is: whoever talks of code means to be read.
marked.use({
  renderer: {
    html({ text }) {
      const shown = document.createElement("span");
      shown.textContent = text;
      return shown.innerHTML;
    },
    // A package with its version is no address to write to.
    link({ href, text, tokens }) {
      return href === "mailto:" + text && !/\.[a-z]{2,}$/i.test(text) ? this.parser.parseInline(tokens) : false;
    },
    image({ href, text }) {
      const link = document.createElement("a");
      link.setAttribute("href", href);
      link.textContent = text || href;
      return link.outerHTML;
    },
  },
});

export function html(markdown: string): string {
  return DOMPurify.sanitize(marked.parse(markdown, { async: false }), ALLOWED);
}
