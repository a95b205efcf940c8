export default function Agents(_: { q?: string; id?: string }) { return <p>Agents</p>; }
