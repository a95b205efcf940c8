// Downloads. The browser fetches them itself and can't send the page key, so the page requests a ticket that opens one
// path once. Above: views. Below: the API.

import { post, query } from "./api";

/** Download an API path as a file. */
export async function download(path: string, name: string): Promise<void> {
  const { ticket } = await post<{ ticket: string }>("/api/tickets", { path });
  const link = document.createElement("a");
  link.href = path + (path.includes("?") ? query({ ticket }).replace("?", "&") : query({ ticket }));
  link.download = name;
  link.click();
}
