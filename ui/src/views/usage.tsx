export default function Usage(_: { q?: string; id?: string }) { return <p>Usage</p>; }
