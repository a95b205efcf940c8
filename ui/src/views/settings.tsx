export default function Settings(_: { q?: string; id?: string }) { return <p>Settings</p>; }
