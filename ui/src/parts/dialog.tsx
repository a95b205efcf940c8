// A modal dialog. It uses the browser's own, which traps focus, closes on Escape and makes the rest of the page inert.
// Above: views. Below: nothing.

import { useEffect, useRef, type ReactNode } from "react";
import { IconButton } from "./button";

export function Dialog({ title, onClose, children, wide = false }: { title: string; onClose: () => void; children: ReactNode; wide?: boolean }) {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    const element = dialog.current!;
    const before = document.activeElement as HTMLElement | null;
    element.showModal();
    // Otherwise the browser focuses the close button.
    element.querySelector<HTMLElement>("[data-first]")?.focus();
    return () => {
      element.close();
      before?.focus?.();
    };
  }, []);
  return (
    <dialog
      ref={dialog}
      aria-label={title}
      onCancel={(event) => {
        event.preventDefault();
        onClose();
      }}
      onClick={(event) => event.target === dialog.current && onClose()}
      className={`floats m-auto mt-[12vh] max-h-[76vh] w-[calc(100vw-24px)] overflow-y-auto p-0 text-text ${wide ? "max-w-3xl" : "max-w-lg"}`}
    >
      <div className="p-4">
        <div className="mb-3 flex items-center justify-between gap-2">
          <h2 className="text-base font-semibold">{title}</h2>
          <IconButton icon="cross" label="Close" onClick={onClose} />
        </div>
        {children}
      </div>
    </dialog>
  );
}
