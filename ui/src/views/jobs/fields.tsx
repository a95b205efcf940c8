// A field of the job form: its label, hint and server error. Above: the form. Below: nothing.

import { createContext, useContext, type ReactNode } from "react";
import type { JobDraft } from "../../state/jobdraft";

export const FIELD = "min-h-(--target) w-full rounded-md border border-strong bg-raised px-2 text-sm aria-invalid:border-red";

export interface Wrong {
  field: string;
  sentence: string;
}

export interface Form {
  draft: JobDraft;
  set: (changes: Partial<JobDraft>) => void;
  wrong: Wrong | null;
}

export const FormContext = createContext<Form | null>(null);
export const useForm = () => useContext(FormContext)!;

interface About {
  id: string;
  "aria-invalid"?: true;
  "aria-describedby"?: string;
}

export function Field({ name, label, hint, children }: { name: string; label: string; hint?: ReactNode; children: (about: About) => ReactNode }) {
  const { wrong } = useForm();
  const id = `job-${name}`;
  const sentence = wrong?.field === name ? wrong.sentence : "";
  const described = [hint && `${id}-hint`, sentence && `${id}-wrong`].filter(Boolean).join(" ");
  return (
    <div className="min-w-0">
      <label htmlFor={id} className="mb-1 block text-xs text-quiet">{label}</label>
      {children({ id, "aria-invalid": sentence ? true : undefined, "aria-describedby": described || undefined })}
      {sentence && <p id={`${id}-wrong`} role="alert" className="mt-1 text-sm break-words text-red">{sentence}</p>}
      {hint && <div id={`${id}-hint`} className="mt-1 text-xs text-quiet">{hint}</div>}
    </div>
  );
}

type TextName = { [K in keyof JobDraft]: JobDraft[K] extends string ? K : never }[keyof JobDraft];

interface TextProps {
  name: TextName;
  label: string;
  hint?: ReactNode;
  type?: string;
  min?: number;
  max?: number;
  maxLength?: number;
  placeholder?: string;
  required?: boolean;
  list?: string;
  mono?: boolean;
  autoFocus?: boolean;
}

export function TextField({ name, label, hint, type = "text", mono, ...rest }: TextProps) {
  const { draft, set } = useForm();
  return <Field name={name} label={label} hint={hint}>{(about) => <input {...about} {...rest} type={type} step={type === "datetime-local" && draft[name].length > "2026-12-31T18:00".length ? 1 : undefined} value={draft[name]} onChange={(event) => set({ [name]: event.target.value })} className={FIELD + (mono ? " font-mono" : "")} />}</Field>;
}

export interface Choice {
  value: string;
  name: string;
  hint?: string;
  disabled?: boolean;
}

export function SelectField({ name, label, hint, choices, onChange }: { name: TextName; label: string; hint?: ReactNode; choices: Choice[]; onChange?: (value: string) => void }) {
  const { draft, set } = useForm();
  // Show the current value even if it is no longer offered.
  const all = choices.some((choice) => choice.value === draft[name]) ? choices : [...choices, { value: draft[name], name: draft[name] }];
  return (
    <Field name={name} label={label} hint={hint}>
      {(about) => (
        <select {...about} value={draft[name]} onChange={(event) => (onChange ?? ((value) => set({ [name]: value })))(event.target.value)} className={FIELD}>
          {all.map((choice) => <option key={choice.value} value={choice.value} disabled={choice.disabled}>{choice.name}{choice.hint && ` (${choice.hint})`}</option>)}
        </select>
      )}
    </Field>
  );
}
