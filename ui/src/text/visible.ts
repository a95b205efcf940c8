// Makes invisible characters visible: direction marks, zero-width and control characters can make one command look like
// another. Above: permission requests and diffs. Below: nothing.

const UNSEEN = /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff9-\ufffb\u{e0000}-\u{e007f}]/gu;

export const visible = (text: string) => text.replace(UNSEEN, (one) => `\\u{${one.codePointAt(0)!.toString(16)}}`);
