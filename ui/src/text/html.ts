// Markdown to safe HTML. Above: the views that show a block. Below: marked and DOMPurify. Whatever an agent or a file
// contains, only a small set of elements is allowed: no scripts, styles or forms, and nothing loaded from other
// servers.

import DOMPurify from "dompurify";
import { marked } from "marked";

marked.use({ gfm: true, breaks: false });

const ALLOWED = {
  ALLOWED_TAGS: ["p", "br", "strong", "em", "del", "code", "pre", "blockquote", "ul", "ol", "li", "h1", "h2", "h3", "h4", "h5", "h6", "hr", "a", "table", "thead", "tbody", "tr", "th", "td", "input"],
  ALLOWED_ATTR: ["href", "title", "start", "type", "checked", "disabled", "align"],
  ALLOWED_URI_REGEXP: /^(?:https?:|mailto:|#)/i,
  // Not URLs, so don't check them as URLs. Otherwise a list that starts at 2 would start at 1.
  ADD_URI_SAFE_ATTR: ["start", "align", "type"],
  ALLOW_DATA_ATTR: false,
  ALLOW_ARIA_ATTR: false,
};

DOMPurify.addHook("afterSanitizeAttributes", (node) => {
  if (node.tagName === "A") {
    node.setAttribute("target", "_blank");
    node.setAttribute("rel", "noopener noreferrer nofollow");
  }
  // Put list markers on the side where the text starts.
  if (node.tagName === "UL" || node.tagName === "OL") node.setAttribute("dir", "auto");
  if (node.tagName === "INPUT") {
    node.setAttribute("type", "checkbox");
    node.setAttribute("disabled", "");
    node.setAttribute("aria-label", node.hasAttribute("checked") ? "done" : "not done");
  }
});

// Show images as links, because the page loads nothing from other servers. Show HTML in markdown as text: agents that
// write about code mean it to be read.
marked.use({
  renderer: {
    html({ text }) {
      const shown = document.createElement("span");
      shown.textContent = text;
      return shown.innerHTML;
    },
    // A package with a version (x@1.2.0) is not an email address.
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
