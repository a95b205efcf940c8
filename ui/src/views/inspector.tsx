export default function Inspector(_: { q?: string; id?: string }) { return <p>Inspector</p>; }
